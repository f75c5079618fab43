"""Every snippet of every page: Python is run, commands are run or read by the real parser, tables are opened.

A block that is none of these is marked as text, where a reader sees it too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from docs.pages import PAGES, ROOT, SHELLS, TINY, Block, blocks, code_spans, commands, page_name
from kmcl.cli.app import COMMANDS, load_command, make_app
from kmcl.data import open_dataset
from kmcl.runs.resolution import resolve_settings
from kmcl.training import tuning

TEXT = {"text", "json", "toml", "math", "{math}", "{toctree}", "{include}"}
TRAINED = {"docs/start.md": ["--option", "size=120"], "docs/tutorial.md": [], "docs/text.md": []}
"""Pages whose `kmcl train` are run, with tiny settings and these arguments; elsewhere they are resolved."""
RUN_TO_THE_LAST = {"docs/tutorial.md", "docs/text.md"}
"""Pages whose commands are all run."""

RUN_AS_WRITTEN = {
    *(
        "data check",
        "data describe",
        "data convert",
        "evaluate",
        "predict",
        "figure predictions",
        "figure similarity",
    ),
}


def find_command(words: list[str]) -> tuple[tuple[str, ...], Any, list[str]]:
    """The command that words call, its name, and the words that are left for it."""
    command, name, below = None, (), program()
    while words and words[0] in below:
        command, name, words = below[words[0]], (*name, words[0]), words[1:]
        below = getattr(command, "commands", {})
    return name, command, words


def run(arguments: list[str], place: str) -> None:
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, f"{place}: kmcl {' '.join(arguments)}: {result.exception}\n{result.output}"


def parse(arguments: list[str], place: str) -> tuple[str, ...]:
    """Read a command with the parser of the program, to the last flag and value."""
    name, command, rest = find_command(arguments)
    is_leaf = command is not None and not hasattr(command, "commands")
    assert is_leaf, f"{place}: kmcl {' '.join(arguments)} is no command"
    try:
        command.make_context(" ".join(name), list(rest))
    except Exception as error:
        pytest.fail(f"{place}: kmcl {' '.join(arguments)}: {error}")
    return name


def check_commands(block: Block) -> None:
    for arguments in commands(block):
        check_command(arguments, block)


def check_command(arguments: list[str], block: Block) -> None:
    name = parse(arguments, block.place)
    if name == ("train",) and "--resume" not in arguments:
        if page_name(block.page) in TRAINED:
            has_images = not any(word.startswith("features:") for word in arguments)
            tiny = TINY | {"frozen_stages": 0, "cached_views": 0} if has_images else {}
            flags = [f"--{key.replace('_', '-')}={value}" for key, value in tiny.items()]
            run([*arguments, *flags, *TRAINED[page_name(block.page)]], block.place)
        else:
            run([*arguments, "--show-settings"], block.place)
    elif page_name(block.page) in RUN_TO_THE_LAST or (
        " ".join(name) in RUN_AS_WRITTEN and not any(word.endswith(".onnx") for word in arguments)
    ):
        run(arguments, block.place)


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ends long before its budget does: what runs make of their time is tested elsewhere."""
    monkeypatch.setattr(tuning, "FEWEST_TRIAL_STEPS", 1)
    limits = dict.fromkeys(tuning.EPOCH_LIMITS, tuning.EpochLimit(2, 1))
    monkeypatch.setattr(tuning, "EPOCH_LIMITS", limits)


@pytest.mark.usefixtures("few_epochs", "quick_figures")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_snippets_do_what_they_say(page: Path, workspace: Path, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    scope: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), scope)
        elif block.language in SHELLS:
            check_commands(block)
        elif block.language == "yaml":
            check_settings_file(block, workspace / f"settings-{block.line}.yaml")
        elif block.language == "csv":
            check_table(block, workspace / f"table-{block.line}")
        else:
            assert block.language in TEXT, f"{block.place}: {block.language!r} is not run; mark it as text"


def check_settings_file(block: Block, path: Path) -> None:
    path.write_text(block.text)
    settings = resolve_settings(None, file=path).model_dump()
    for group, written in yaml.safe_load(block.text).items():
        for name, value in written.items() if isinstance(written, dict) else ():
            assert settings[group][name] == value, f"{block.place}: {group}.{name}"


def check_table(block: Block, folder: Path) -> None:
    (folder / "photos").mkdir(parents=True, exist_ok=True)
    (folder / "labels.csv").write_text(block.text)
    names = re.findall(r"^(photos/[^,]+)", block.text, re.MULTILINE)
    for name in names:
        Image.new("RGB", (16, 16)).save(folder / name)
    undivided = (
        {} if ",split," in block.text else {"val_fraction": 0, "test_fraction": 0}
    )  # too few to divide
    dataset = open_dataset(f"table:{folder / 'labels.csv'}", **undivided)
    assert sum(len(split) for split in dataset.splits.values()) == len(names), block.place
    assert {"person", "dog", "bicycle"} == set(dataset.labels), block.place


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_no_block_is_indented_and_thereby_unmarked(page: Path):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert not re.findall(r"^\n {4}(?! *[-*\d]).*", text, re.MULTILINE), page


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_and_flags_in_sentences_exist(page: Path):
    known_anywhere = every_flag()
    for span in code_spans(page):
        words = span.split()
        flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", span))
        if words[0] == "kmcl" and len(words) > 1:
            name, command, rest = find_command(words[1:])
            assert name or rest[0].isupper() or rest[0].startswith("-"), f"{page}: `{span}` is no command"
            is_leaf = command is not None and not hasattr(command, "commands")
            known = options(command) | {"--help"} if is_leaf else known_anywhere
            assert flags <= known, f"{page}: `{span}`"
        elif words[0].startswith("--"):
            assert flags <= known_anywhere, f"{page}: `{span}`"


@cache
def every_flag() -> set[str]:
    """Flags of all commands, and of the scripts in benchmarks."""
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    of_scripts = re.findall(r'add_argument\(\s*"(--[\w-]+)"', scripts)
    return {"--help", *of_scripts}.union(
        *(options(command) for found in program().values() for command in leaves(found))
    )


@cache
def program() -> dict[str, Any]:
    return {name: load_command(name) for name in COMMANDS}


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def leaves(command: Any) -> Iterator[Any]:
    below = getattr(command, "commands", None)
    if not below:
        yield command
        return
    for child in below.values():
        yield from leaves(child)


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        ("bash", "kmcl train digits --epoch 3", "No such option"),
        ("bash", "kmcl predict runs/RUN photos --engine onxx", "onxx"),
        ("bash", "kmcl trian digits", "is no command"),
        ("bash", "kmcl train digits --encoder", "requires an argument"),
        ("bash", "rm -r runs", "starts no kmcl"),
        ("bash", "kmcl train digits --method asll --epochs 0", "epochs"),
        ("bash", "kmcl evaluate runs/NONE", "is no run folder"),
    ],
)
def test_a_broken_snippet_is_found(language, text, message, workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    block = Block(PAGES[0], language, text, 1)
    with pytest.raises((AssertionError, pytest.fail.Exception), match=message):
        check_commands(block)
