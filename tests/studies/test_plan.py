"""The plan of a study: kept in its folder, joined with what is added, refused where it differs."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.studies.command import command_of
from kmcl.studies.locks import is_taken, take
from kmcl.studies.plan import StudyPlan, default_folder, enter_plan, make_plan, read_plan
from kmcl.studies.variants import parse_variants
from kmcl.training.settings import resolve_settings


def plan(methods: str = "asl,kmcl", seeds: tuple[int, ...] = (0, 1), **flags: object) -> StudyPlan:
    settings = resolve_settings("digits", flags={"epochs": 3, "data_options": {"size": 120}} | flags)
    return make_plan("compare", settings, parse_variants([methods]), seeds)


def test_members_differ_in_method_seed_and_own_settings_only(tmp_path: Path):
    members = plan("asl,bold=kmcl:temperature=1").members(tmp_path)
    assert [member.name for member in members] == ["asl-seed0", "bold-seed0", "asl-seed1", "bold-seed1"]
    first, other = members[0].settings, members[3].settings
    differing = {name for name, value in first if getattr(other, name) != value}
    assert differing == {"method", "seed", "temperature"}


def test_it_is_read_as_it_was_entered(tmp_path: Path):
    entered = enter_plan(tmp_path / "study", plan("asl,bold=kmcl:temperature=1"))
    assert read_plan(tmp_path / "study") == entered == plan("asl,bold=kmcl:temperature=1")


def test_methods_and_seeds_may_be_added(tmp_path: Path):
    enter_plan(tmp_path, plan("asl,kmcl", (0,)))
    joined = enter_plan(tmp_path, plan("bce,asl", (2, 0), workers=1))
    assert [variant.name for variant in joined.variants] == ["asl", "kmcl", "bce"]
    assert joined.seeds == (0, 2)
    assert joined.settings.workers is None
    assert read_plan(tmp_path) == joined


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epochs": 4}, r"the study was started with epochs 3, now it is 4; use another --output"),
        ({"data_options": {"size": 60}}, r"started with data_options \{'size': 120\}"),
        (
            {"methods": "asl,kmcl:temperature=1,kmcl=kmcl:temperature=2"},
            "'kmcl' was started with temperature",
        ),
        ({"methods": "asl,kmcl=bce"}, "'kmcl' was started with method 'kmcl', now it is 'bce'"),
    ],
)
def test_what_differs_is_refused(tmp_path: Path, other: dict[str, object], message: str):
    enter_plan(tmp_path, plan())
    with pytest.raises(InputError, match=message):
        enter_plan(tmp_path, plan(**other))


def test_a_folder_of_something_else_is_refused(tmp_path: Path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no study"):
        enter_plan(tmp_path, plan())
    with pytest.raises(InputError, match=r"holds no study: it has no study\.yaml"):
        read_plan(tmp_path)
    (tmp_path / "study.yaml").write_text("kind: compare")
    with pytest.raises(InputError, match=r"study\.yaml: is not the plan of a study"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, "seeds must be different numbers; got none"),
        ({"seeds": (1, 1)}, "seeds must be different numbers; got 1,1"),
        ({"devices": 2}, "trained by one process"),
        ({"methods": "kmcl:kernel=round"}, "variant 'kmcl kernel=round': kernel: "),
    ],
)
def test_plans_that_cannot_be_run_are_refused(changes: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        plan(**changes)
    with pytest.raises(InputError, match="reference must be one of asl; got 'bce'"):
        make_plan("compare", plan().settings, parse_variants(["asl"]), (0,), "bce")


def test_the_same_settings_have_the_same_folder():
    assert default_folder(plan()) == default_folder(plan("bce", (7,), workers=3))
    assert default_folder(plan()) != default_folder(plan(epochs=4))


def test_the_command_of_a_plan_makes_it_again(monkeypatch: pytest.MonkeyPatch):
    """Parsed by the program itself, up to where it would begin to train."""
    made = make_plan(
        "compare",
        resolve_settings(
            "digits",
            preset="paper",
            flags={"channels_last": False, "learning_rate": 1 / 3000, "data_options": {"size": "120"}},
        ),
        parse_variants(["asl,bold=kmcl:temperature=1,normalise_dimension=false"]),
        (0, 3),
        "bold",
    )
    seen: list[StudyPlan] = []
    monkeypatch.setattr("kmcl.cli.compare.run_and_show", lambda plan, *rest: seen.append(plan))
    words = shlex.split(command_of(made))
    result = CliRunner().invoke(make_app(), words[1:])
    assert result.exit_code == 0, result.output
    assert seen == [made]


def test_a_lock_goes_with_its_process(tmp_path: Path):
    """Also when that is killed while a child of it lives on."""
    lock = tmp_path / "locks" / "x.lock"
    code = (
        "import os, sys, time; from pathlib import Path; from kmcl.studies.locks import take;"
        f"assert take(Path({str(lock)!r})) is not None;"
        "os.fork() or (time.sleep(60), os._exit(0));"
        "print('taken', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    assert is_taken(lock)
    assert take(lock) is None
    process.kill()
    process.wait()
    assert not is_taken(lock)
    descriptor = take(lock)
    assert descriptor is not None
    os.close(descriptor)
