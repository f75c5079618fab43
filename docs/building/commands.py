"""The command reference, read from the program's own parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

NOTES = re.compile(r"\s*\[([^\[\]]*)\]$")


def command_tree() -> dict[str, Any]:
    """The commands and groups of commands of `kmcl`."""
    from kmcl.cli.app import COMMANDS, load_command

    return {name: load_command(name) for name in COMMANDS}


def leaf_commands(
    commands: Mapping[str, Any], words: tuple[str, ...] = ("kmcl",)
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    for name, command in commands.items():
        if below := getattr(command, "commands", None):
            yield from leaf_commands(below, (*words, name))
        else:
            yield (*words, name), command


def anchor(words: tuple[str, ...]) -> str:
    return "-".join(words)


def command_reference() -> str:
    """Markdown: a table of all commands, then a section for each."""
    commands = list(leaf_commands(command_tree()))
    parts = ["| command | what it does |\n|---|---|"]
    for words, command in commands:
        summary = " ".join((command.help or "").strip().split("\n\n")[0].split())
        parts[0] += f"\n| [`{' '.join(words)}`](#{anchor(words)}) | {_cell(summary)} |"
    parts += [_section(words, command) for words, command in commands]
    return "\n\n".join(parts)


def _section(words: tuple[str, ...], command: Any) -> str:
    context = command.make_context(" ".join(words), [], resilient_parsing=True)
    usage = " ".join(command.get_usage(context).removeprefix("Usage: ").split())
    usage = usage.replace("{", "").replace("}", "").replace("......", "...")
    parts = [f"({anchor(words)})=\n## {' '.join(words)}", f"```text\n{usage}\n```"]
    parts += [" ".join(text.split()) for text in (command.help or "").strip().split("\n\n")]
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is None or getattr(parameter, "hidden", False):
            continue
        is_option = parameter.param_type_name == "option"
        panel = getattr(parameter, "rich_help_panel", None) or ("Options" if is_option else "Arguments")
        panels.setdefault(panel, []).append(record)
    for panel, records in panels.items():
        rows = [_row(names, text) for names, text in records]
        parts.append(f"**{panel}**\n\n| | meaning | default |\n|---|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _row(names: str, text: str) -> str:
    meaning, default = text, ""
    if notes := NOTES.search(text):
        meaning = text[: notes.start()]
        kept = []
        for note in notes.group(1).split("; "):
            if note.startswith("default: "):
                default = note.removeprefix("default: ").removeprefix("(").removesuffix(")")
            else:
                kept.append(note)
        if kept:
            meaning += f" ({'; '.join(kept)})"
    return f"| `{_cell(names)}` | {_cell(_escape(meaning))} | {f'`{_cell(default)}`' if default else ''} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _escape(text: str) -> str:
    """Characters of help texts that Markdown would take for its own."""
    return re.sub(r"([*<>\[\]])", r"\\\1", text)
