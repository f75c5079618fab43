"""The plan of a study: kept in its folder, joined with what is added, refused where it differs."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.cli.study_folder import study_values
from kmcl.errors import InputError
from kmcl.runs.resolution import flat_values
from kmcl.storage.locks import is_locked, try_lock
from kmcl.studies.command import command_of
from kmcl.studies.plan import (
    StudyPlan,
    check_options_are_used,
    default_folder,
    enter_plan,
    make_plan,
    read_plan,
)
from kmcl.studies.variants import parse_variants


def plan(methods: str = "asl,kmcl", seeds: tuple[int, ...] = (0, 1), **flags: object) -> StudyPlan:
    values = {"data": "digits", "epochs": 3, "data_options": {"size": 120}} | flags
    return make_plan("compare", values, parse_variants([methods]), seeds)


def test_members_differ_in_method_seed_and_own_settings_only(tmp_path: Path):
    members = plan("asl,bold=kmcl:query_width=16").members(tmp_path)
    assert [member.name for member in members] == ["asl-seed0", "bold-seed0", "asl-seed1", "bold-seed1"]
    first, other = flat_values(members[0].settings), flat_values(members[3].settings)
    common = first.keys() & other.keys()
    assert {name for name in common if first[name] != other[name]} == {"method", "posthoc", "seed"}
    plain = flat_values(plan("asl,kmcl").members(tmp_path)[3].settings)
    assert {name for name in plain if plain[name] != other[name]} == {"query_width"}


def test_it_is_read_as_it_was_entered(tmp_path: Path):
    entered = enter_plan(tmp_path / "study", plan("asl,bold=kmcl:query_width=16"))
    assert read_plan(tmp_path / "study") == entered == plan("asl,bold=kmcl:query_width=16")


def test_methods_have_their_parts_of_grey_images(tmp_path: Path):
    """As a training of each alone; also when the plan is read again, and with another method in it."""
    for number in range(8):
        Image.new("RGB", (32, 32), (10 * number,) * 3).save(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{'train' if number < 6 else 'val'},{number % 2}\n" for number in range(8)]
    (tmp_path / "scans.csv").write_text("image,split,odd\n" + "".join(rows))
    given = {"data": str(tmp_path / "scans.csv"), "data_options": {}}
    folder = tmp_path / "study"
    entered = enter_plan(folder, plan("kmcl,asl,plain=kmcl:posthoc=none,few=kmcl:frozen_stages=6", **given))
    assert read_plan(folder) == entered
    joined = enter_plan(folder, plan("later=kmcl", **given))
    settings = {member.variant: member.settings for member in joined.members(folder)}
    grids = {
        name: [part.grid for part in one.posthoc if part.name == "frozen_gp"]
        for name, one in settings.items()
    }
    assert grids == {"kmcl": [7], "asl": [], "plain": [], "few": [0], "later": [7]}
    stages = {name: one.encoder.frozen_stages for name, one in settings.items()}
    assert stages == {"kmcl": 5, "asl": 5, "plain": 5, "few": 6, "later": 5}


def test_methods_and_seeds_may_be_added(tmp_path: Path):
    enter_plan(tmp_path, plan("asl,kmcl", (0,)))
    joined = enter_plan(tmp_path, plan("bce,asl", (2, 0), workers=1))
    assert [variant.name for variant in joined.variants] == ["asl", "kmcl", "bce"]
    assert joined.seeds == (0, 2)
    assert joined.settings.data.workers is None
    assert read_plan(tmp_path) == joined


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"epochs": 4}, r"the study was started with epochs 3, now it is 4; use another --output"),
        ({"data_options": {"size": 60}}, r"started with data_options \{'size': 120\}"),
        (
            {"methods": "asl,kmcl:positive_focus=1,kmcl=kmcl:positive_focus=2"},
            "'kmcl' was started with positive_focus",
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
    for content in (b"kind: compare", b"kind: \xff", b"kind: [compare", b"kind: " + 5000 * b"["):
        (tmp_path / "study.yaml").write_bytes(content)
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
        make_plan("compare", plan().values, parse_variants(["asl"]), (0,), "bce")


def test_the_same_settings_have_the_same_folder():
    assert default_folder(plan()) == default_folder(plan("bce", (7,), workers=3))
    assert default_folder(plan()) != default_folder(plan(epochs=4))


def test_the_command_of_a_plan_makes_it_again(monkeypatch: pytest.MonkeyPatch):
    """Parsed by the program itself, up to where it would begin to train."""
    made = make_plan(
        "compare",
        study_values(
            "digits", "paper", None, ["size=120"], {"channels_last": False, "learning_rate": 1 / 3000}
        ),
        parse_variants(["asl,bold=kmcl:temperature=1,normalise_dimension=false"]),
        (0, 3),
        "bold",
    )
    seen: list[StudyPlan] = []
    monkeypatch.setattr("kmcl.cli.study_arguments.run_and_show", lambda plan, *rest: seen.append(plan))
    words = shlex.split(command_of(made))
    result = CliRunner().invoke(make_app(), words[1:])
    assert result.exit_code == 0, result.output
    assert seen == [made]
    assert made.members(Path())[1].settings.method.head_init == "paper"


@pytest.mark.parametrize(
    "posthoc", ["none", "frozen_gp,kernel_vote:max_images=9", [{"name": "kernel_vote", "max_images": 9}]]
)
def test_post_hoc_parts_are_a_part_of_the_plan_and_of_its_command(
    posthoc: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Also as a file of settings gives them, which is a list."""
    own = "asl,plain=kmcl:posthoc=none,both=bce:posthoc=frozen_gp+kernel_vote"
    made = plan(own, (0,), posthoc=posthoc, frozen_stages=2, data_options={"size": "120"})
    parts = {m.variant: [part.name for part in m.settings.posthoc] for m in made.members(tmp_path)}
    common = {"none": [], "frozen_gp,kernel_vote:max_images=9": ["frozen_gp", "kernel_vote"]}
    assert parts == {
        "asl": common.get(str(posthoc), ["kernel_vote"]),
        "plain": [],
        "both": ["frozen_gp", "kernel_vote"],
    }
    assert enter_plan(tmp_path, made) == made == read_plan(tmp_path)
    seen: list[StudyPlan] = []
    monkeypatch.setattr("kmcl.cli.study_arguments.run_and_show", lambda plan, *rest: seen.append(plan))
    result = CliRunner().invoke(make_app(), shlex.split(command_of(made))[1:])
    assert result.exit_code == 0, result.exception
    assert seen == [made]


def test_an_option_is_for_the_methods_that_have_it(tmp_path: Path):
    """And where no method compared has it, it is a mistake."""
    gaussian = {"kernel": "gaussian"}
    by_method = {m.settings.method.name: m.settings.method for m in plan(**gaussian).members(tmp_path)}
    assert by_method["kmcl"].kernel == "gaussian"
    assert not hasattr(by_method["asl"], "kernel")
    check_options_are_used(gaussian, parse_variants(["asl,kmcl"]))
    check_options_are_used(["epochs", "posthoc"], parse_variants(["asl,bce"]))
    message = "kernel is an option of kmcl; none of these is compared: asl, bce"
    with pytest.raises(InputError, match=message):
        check_options_are_used(gaussian, parse_variants(["asl,bce"]))
    for command in (["compare"], ["study", "data-size"]):
        result = CliRunner().invoke(
            make_app(), [*command, "digits", "--methods", "asl,bce", "--kernel", "gaussian"]
        )
        assert isinstance(result.exception, InputError)
        assert str(result.exception) == message
    with pytest.raises(InputError, match="variant 'asl kernel=gaussian': method asl has no option kernel"):
        plan("asl:kernel=gaussian,kmcl")


def test_the_command_has_every_option_that_a_method_has_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Options of a preset are in the plan, also where no method has them yet; one may be added."""
    values = study_values("digits", "paper", None, None, {})
    without = make_plan("compare", values, parse_variants(["asl,bce"]), (0,))
    assert "--head-init" not in command_of(without)
    among = make_plan("compare", values, parse_variants(["asl,kmcl"]), (0,))
    assert "--temperature 0.2" in command_of(among)
    enter_plan(tmp_path, without)
    seen: list[StudyPlan] = []
    monkeypatch.setattr("kmcl.cli.study_arguments.run_and_show", lambda plan, *rest: seen.append(plan))
    for plan in (without, among):
        result = CliRunner().invoke(make_app(), shlex.split(command_of(plan))[1:])
        assert result.exit_code == 0, result.exception
        joined = enter_plan(tmp_path, seen[-1])
        assert [m.settings for m in seen[-1].members(tmp_path)] == [
            m.settings for m in plan.members(tmp_path)
        ]
    assert [variant.name for variant in joined.variants] == ["asl", "bce", "kmcl"]
    assert joined.members(tmp_path)[2].settings.method.head_init == "paper"


def test_a_lock_goes_with_its_process(tmp_path: Path):
    """Also when that is killed while a child of it lives on."""
    lock = tmp_path / "locks" / "x.lock"
    code = (
        "import os, sys, time; from pathlib import Path; from kmcl.storage.locks import try_lock;"
        f"lock = try_lock(Path({str(lock)!r})); assert lock is not None;"
        "os.fork() or (time.sleep(60), os._exit(0));"
        "print('taken', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "taken\n"
    assert is_locked(lock)
    assert try_lock(lock) is None
    process.kill()
    process.wait()
    end = time.monotonic() + 30  # the child gives its copy up when it first runs
    while is_locked(lock):
        assert time.monotonic() < end
        time.sleep(0.05)
    mine = try_lock(lock)
    assert mine is not None
    mine.release()
