"""A comparison that first searches a setting for every method, as often for each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kmcl.errors import InputError
from kmcl.studies.plan import StudyPlan, default_folder, enter_plan, make_plan, read_plan
from kmcl.studies.study import Found, run_study
from kmcl.studies.variants import EqualSearch, parse_search, parse_variants
from studies_settings import TINY


def plan(
    methods: str = "asl,bce", search: str = "learning_rate=1e-5,5e-3", seeds: tuple[int, ...] = (3, 4)
) -> StudyPlan:
    values = {"data": "digits", **TINY}
    return make_plan("compare", values, parse_variants([methods]), seeds, None, parse_search(search))


def test_every_method_has_the_same_trials_with_one_seed_and_none_sees_test(tmp_path: Path):
    trials = plan("asl,wide=kmcl:query_width=64", "epochs=1,2,3").trials.members(tmp_path)
    assert [(member.settings.method.name, member.settings.optimisation.epochs) for member in trials] == [
        (method, epochs) for method in ("asl", "kmcl") for epochs in (1, 2, 3)
    ]
    assert {member.seed for member in trials} == {3}
    assert not any(member.settings.evaluation.measure_test for member in trials)
    assert len({member.name for member in trials}) == 6
    assert trials[-1].settings.method.query_width == 64


def test_the_best_on_val_is_chosen_and_what_failed_is_left_out():
    search = EqualSearch("epochs", (1, 2, 3))
    found = Found(search, {"asl": {1: 0.4, 2: 0.6, 3: 0.6}, "bce": {3: 0.2}, "kmcl": {}})
    chosen = found.chosen(plan("asl,bce,kmcl", "epochs=1,2,3"))
    assert {name: one.optimisation.epochs for name, one in chosen.settings.items()} == {"asl": 2, "bce": 3}
    assert {v.name: v.changes for v in chosen.variants} == {"asl": {"epochs": 2}, "bce": {"epochs": 3}}
    assert found.section(3).splitlines()[2:] == [
        "| epochs: | 1 | 2 | 3 |",
        "| --- | --- | --- | --- |",
        "| asl | 40.00 | **60.00** | 60.00 |",
        "| bce | - | - | **20.00** |",
        "| kmcl | - | - | - |",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rate", "as in learning_rate=3e-4,1e-3; got 'learning_rate'"),
        ("learning_rat=1,2", "unknown setting 'learning_rat' .did you mean 'learning_rate'"),
        ("learning_rate=1e-3", "must have at least two different values"),
        ("learning_rate=1e-3,0.001", "must have at least two different values"),
        ("seed=1,2", "seed is the same for all that is compared"),
    ],
)
def test_a_search_that_is_none_is_refused(text: str, message: str):
    with pytest.raises(InputError, match=message):
        parse_search(text)


def test_a_search_that_cannot_be_trained_is_refused_before_anything_begins():
    with pytest.raises(InputError, match="epochs=0"):
        plan(search="epochs=0,2")
    with pytest.raises(InputError, match="'asl epochs=2': epochs is what --search chooses"):
        plan("bce,asl:epochs=2", "epochs=1,2")


def test_it_is_a_part_of_the_plan(tmp_path: Path):
    assert enter_plan(tmp_path, plan()) == read_plan(tmp_path) == plan()
    without = replace(plan(), search=None)
    assert default_folder(without) != default_folder(plan())
    with pytest.raises(InputError, match=r"started with search 'learning_rate=1e-05,0\.005', now it is None"):
        enter_plan(tmp_path, without)


def test_each_method_is_compared_with_the_value_its_own_trials_chose(tmp_path: Path):
    folder = tmp_path / "study"
    study = plan(seeds=(3,))
    assert study.search is not None
    result = run_study(study, folder, jobs=2)
    trials = study.trials.members(folder / "search")
    for variant in result.variants:
        val_map = {
            trial.settings.optimisation.learning_rate: trial.run.read_metrics()["best"]["val_map"]
            for trial in trials
            if trial.settings.method.name == variant.method
        }
        best = max(val_map, key=lambda rate: val_map[rate])
        assert variant.changes == {"learning_rate": best}
        # With that value the training is the trial again, and only here test is measured.
        member = folder / "members" / f"{variant.name}-seed3"
        assert (member / "predictions" / "test.npz").is_file()
        assert variant.metrics["val mAP"].mean == pytest.approx(val_map[best])
    assert not list((folder / "search").rglob("test.npz"))
    table = (folder / "table.md").read_text()
    assert "Each method was trained 2 times with seed 3 to choose its learning_rate" in table
