"""The plan of a study: kept in its folder, joined with what is added, refused where it differs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.runs.resolution import Given, flat_values
from kmcl.storage.locks import is_locked, try_lock
from kmcl.studies.plan import StudyPlan, default_folder, enter_plan, make_plan, read_plan
from kmcl.studies.variants import check_options_are_used, parse_variants
from kmcl.training.plan import make_plan as plan_training
from planned_runs import planned_study


def plan(methods: str = "asl,kmcl", seeds: tuple[int, ...] = (0, 1), **flags: object) -> StudyPlan:
    values = {"data": "digits", "epochs": 3, "data_options": {"size": 120}} | flags
    return make_plan("compare", values, parse_variants([methods]), seeds)


def grey_table(folder: Path) -> Path:
    for number in range(8):
        Image.new("RGB", (32, 32), (10 * number,) * 3).save(folder / f"{number}.png")
    rows = [f"{number}.png,{'train' if number < 6 else 'val'},{number % 2}\n" for number in range(8)]
    (folder / "scans.csv").write_text("image,split,odd\n" + "".join(rows))
    return folder / "scans.csv"


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
    given = {"data": str(grey_table(tmp_path)), "data_options": {}}
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
    assert joined.settings["asl"].data.workers is None
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
        make_plan("compare", plan().base, parse_variants(["asl"]), (0,), "bce")


def test_the_same_settings_have_the_same_folder():
    assert default_folder(plan()) == default_folder(plan("bce", (7,), workers=3))
    assert default_folder(plan()) != default_folder(plan(epochs=4))


def test_a_study_is_repeated_from_its_description(tmp_path: Path):
    """By the program itself, up to where it would begin to train; a flag overrides."""
    wanted = "asl,bold=kmcl:temperature=1,normalise_dimension=false"
    flags = f"--preset paper --no-channels-last --learning-rate 0.001 --seeds 0,3 --methods {wanted}"
    made = planned_study("compare", "digits", "-o", "size=120", *flags.split(), "--reference", "bold")
    assert made.members(Path())[1].settings.method.head_init == "paper"
    enter_plan(tmp_path, made)
    again = ("compare", "--config", str(tmp_path / "study.yaml"))
    assert planned_study(*again) == made
    assert planned_study("compare", "--resume", str(tmp_path)) == made
    other = planned_study(*again, "--learning-rate", "0.002", "--seeds", "1")
    assert other == planned_study(
        *("compare", "digits", "-o", "size=120", *flags.split(), "--reference", "bold"),
        *("--learning-rate", "0.002", "--seeds", "1"),
    )
    more = planned_study(*again, "--methods", "asl,bce")
    assert [variant.name for variant in more.variants] == ["asl", "bce"]
    assert more.settings["asl"] == made.settings["asl"]
    for words, message in (
        (("study", "kernels", *again[1:]), "is a study of kind 'compare'; use kmcl compare"),
        ((*again, "--preset", "paper"), "leave out preset paper"),
        (
            ("compare", "--resume", str(tmp_path), "--epochs", "3"),
            "continues a study with the settings it was",
        ),
    ):
        with pytest.raises(InputError, match=message):
            planned_study(*words)


def test_relative_paths_of_a_description_are_those_of_where_it_was_begun(tmp_path: Path, monkeypatch):
    (tmp_path / "begun").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "begun" / "a.png")
    rows = "".join(f"a.png,{split},1\n" for split in ("train", "val"))
    (tmp_path / "begun" / "labels.csv").write_text(f"image,split,odd\n{rows}")
    monkeypatch.chdir(tmp_path / "begun")
    enter_plan(Path("study"), plan(data="labels.csv", data_options={}))
    monkeypatch.chdir(tmp_path)
    other = planned_study("compare", "--config", "begun/study/study.yaml", "--epochs", "4")
    assert {one.data.spec for one in other.settings.values()} == {
        f"table:{tmp_path / 'begun' / 'labels.csv'}"
    }


def test_a_study_keeps_the_settings_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where a later version chooses others: goes on with the same command, and takes nothing new."""
    began = enter_plan(tmp_path, plan(encoder="resnet18"))
    monkeypatch.setattr("kmcl.runs.recipes.LEARNING_RATE", 0.1)
    now = plan(encoder="resnet18")
    assert now.settings["asl"].optimisation.learning_rate == 0.1
    assert enter_plan(tmp_path, now) == began
    assert planned_study("compare", "--config", str(tmp_path / "study.yaml")) == began
    with pytest.raises(InputError, match=r"the study was started with learning_rate 0\.003, now it is 0\.1"):
        enter_plan(tmp_path, plan("asl,kmcl,bce", encoder="resnet18"))
    with pytest.raises(InputError, match=r"the study was started with learning_rate 0\.003, now it is 0\.1"):
        enter_plan(tmp_path, plan("bce", encoder="resnet18"))


BEFORE = """
kind: compare
reference: asl
seeds: [0, 1]
variants:
  asl: {method: asl, changes: {}}
  few: {method: kmcl, changes: {frozen_stages: 6, query_width: 16}}
grey: true
settings:
  data: SCANS
  data_options: {}
  encoder: tf_efficientnet_lite0
  image_size: 224
  frozen_stages: 5
  cached_views: 2
  feature_runtime: onnxruntime
  epochs: 3
  learning_rate: 0.003
  seed: 0
  devices: null
  nodes: 1
  recipe: cached
  budget: null
  to_choose: []
  positive_focus: 0.25
"""


def test_a_study_of_the_version_before_goes_on_with_the_same_members(tmp_path: Path):
    scans = grey_table(tmp_path)
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.yaml").write_text(BEFORE.replace("SCANS", str(scans)))
    resumed = planned_study("compare", "--resume", str(folder))
    members = {member.name: member.settings for member in resumed.members(folder)}
    assert list(members) == ["asl-seed0", "few-seed0", "asl-seed1", "few-seed1"]
    asl, few = members["asl-seed1"], members["few-seed1"]
    assert (asl.encoder.frozen_stages, few.encoder.frozen_stages) == (5, 6)
    assert (asl.encoder.feature_runtime, asl.optimisation.epochs, asl.optimisation.seed) == (
        "onnxruntime",
        3,
        1,
    )
    assert (few.method.query_width, few.method.positive_focus) == (16, 0.25)
    assert [(part.name, part.grid) for part in few.posthoc if part.name == "frozen_gp"] == [("frozen_gp", 0)]
    assert enter_plan(folder, resumed) == read_plan(folder) == resumed
    added = enter_plan(folder, make_plan("compare", resumed.base, parse_variants(["bce"]), (2,)))
    assert [variant.name for variant in added.variants] == ["asl", "few", "bce"]


@pytest.mark.parametrize(
    "posthoc", ["none", "frozen_gp,kernel_vote:max_images=9", [{"name": "kernel_vote", "max_images": 9}]]
)
def test_post_hoc_parts_are_a_part_of_the_plan(posthoc: object, tmp_path: Path):
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
    assert planned_study("compare", "--config", str(tmp_path / "study.yaml")) == made


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


def test_options_are_kept_for_methods_that_are_added(tmp_path: Path):
    flags = ("compare", "digits", "--preset", "paper", "--seeds", "0", "--methods")
    enter_plan(tmp_path, planned_study(*flags, "asl,bce"))
    joined = enter_plan(tmp_path, planned_study(*flags, "asl,kmcl"))
    assert [variant.name for variant in joined.variants] == ["asl", "bce", "kmcl"]
    assert joined.members(tmp_path)[2].settings.method.head_init == "paper"


def test_a_variant_is_what_a_training_with_its_settings_is(tmp_path: Path):
    """Also what a recipe chooses for its own encoder, recipe or images."""
    changes = {
        "other": {"encoder": "tf_efficientnet_lite2"},
        "whole": {"recipe": "finetune"},
        "plain": {"augmentation": "none"},
    }
    words = [f"{name}=kmcl:{key}={value}" for name, one in changes.items() for key, value in one.items()]
    members = plan(",".join(words), (3,)).members(tmp_path)
    for member in members:
        given = {"data": "digits", "data_options": {"size": 120}, "epochs": 3, "seed": 3, "devices": 1}
        assert member.settings == plan_training(Given(given | changes[member.variant])).settings


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
