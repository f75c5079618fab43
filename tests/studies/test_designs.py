"""What the studies compare, and how their commands read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmcl.api import study
from kmcl.errors import InputError
from kmcl.runs.resolution import settings_from_values
from kmcl.studies.plan import StudyPlan, enter_plan, make_plan
from kmcl.studies.variants import (
    ALL_TERMS,
    OF_SIZES,
    kernel_variants,
    parse_variants,
    size_variants,
    term_variants,
)
from planned_runs import planned_study

VALUES = {"data": "digits", "epochs": 6, "reconstruction_weight": 0.5}
WITH_KERNELS = VALUES | {"kernel": "isotropic"}


def weights_of(plan: StudyPlan, folder: Path) -> dict[str, tuple[float, float, float]]:
    return {
        member.variant: (
            member.settings.method.reconstruction_weight,
            member.settings.method.classification_weight,
            member.settings.method.contrastive_weight,
        )
        for member in plan.members(folder)
    }


def test_all_seven_combinations_of_terms_keep_the_weights_of_what_is_there(tmp_path: Path):
    plan = make_plan("study terms", VALUES, term_variants(VALUES), (0,), ALL_TERMS)
    found = weights_of(plan, tmp_path)
    options = settings_from_values(WITH_KERNELS).method
    whole = (0.5, options.classification_weight, options.contrastive_weight)
    assert len(found) == len(set(found.values())) == 7
    assert found[ALL_TERMS] == whole
    assert found["reconstruction"] == (0.5, 0, 0)
    assert found["classification + contrastive"] == (0, *whole[1:])
    assert all(member.settings.posthoc == () for member in plan.members(tmp_path))
    with pytest.raises(InputError, match="contrastive_weight is 0: a study of the terms needs"):
        term_variants(VALUES | {"contrastive_weight": 0.0})


def test_four_kernels_as_in_the_paper(tmp_path: Path):
    plan = make_plan("study kernels", VALUES, kernel_variants(), (0,), "isotropic")
    kernels = [member.settings.method.kernel for member in plan.members(tmp_path)]
    assert kernels == ["anisotropic", "isotropic", "mahalanobis", "gaussian"]
    assert {member.settings.method.name for member in plan.members(tmp_path)} == {"kmcl"}


def test_sizes_are_compared_with_the_reference_of_the_same_size(tmp_path: Path):
    methods = parse_variants(["asl,kmcl:temperature=1"])
    variants = size_variants(methods, (0.5, 0.1, 1), VALUES["epochs"], same_steps=True)
    plan = make_plan(OF_SIZES, WITH_KERNELS, variants, (0, 1))
    assert plan.reference == "asl"
    assert [plan.reference_of(variant) for variant in plan.variants] == [
        "asl 0.1",
        "asl 0.1",
        "asl 0.5",
        "asl 0.5",
        "asl 1",
        "asl 1",
    ]
    members = {member.name: member.settings for member in plan.members(tmp_path)}
    assert len(members) == 12
    assert members["kmcl-temperature-1-0.1-seed1"].data.train_fraction == 0.1
    assert members["kmcl-temperature-1-0.1-seed1"].optimisation.epochs == 60
    assert members["asl-1-seed0"].optimisation.epochs == 6


@pytest.mark.parametrize(
    ("fractions", "message"),
    [((0.0, 1.0), "at most 1; got 0"), ((0.5, 0.5), "must be different numbers"), ((), "different numbers")],
)
def test_sizes_that_are_none_are_refused(fractions: tuple[float, ...], message: str):
    with pytest.raises(InputError, match=message):
        size_variants(parse_variants(["asl"]), fractions, VALUES["epochs"], same_steps=False)


SIZES = (
    "study data-size digits --methods bce,kmcl:temperature=1 --fractions 0.2,1 --same-steps "
    "--kernel isotropic"
)


@pytest.mark.parametrize(
    "words", ["study terms digits --reconstruction-weight 0.5", "study kernels digits --seeds 2", SIZES]
)
def test_a_study_is_repeated_from_its_description(words: str, tmp_path: Path):
    """As it was; or with other settings, of which its variants are designed again."""
    made = planned_study(*words.split(), "--epochs", "6")
    enter_plan(tmp_path, made)
    kind = words.split()[:2]
    assert planned_study(*kind, "--config", str(tmp_path / "study.yaml")) == made
    assert planned_study(*kind, "--resume", str(tmp_path)) == made
    again = planned_study(*kind, "--config", str(tmp_path / "study.yaml"), "--epochs", "12")
    assert again == planned_study(*words.split(), "--epochs", "12")
    epochs = {member.variant: member.settings.optimisation.epochs for member in again.members(tmp_path)}
    assert set(epochs.values()) == ({60, 12} if words == SIZES else {12})


def test_what_a_study_sets_itself_is_refused():
    for words, message in (
        ("study kernels digits --kernel gaussian", "--kernel: this study trains with every kernel"),
        ("study terms digits --posthoc kernel_vote", "--posthoc: this study compares terms of the loss"),
        ("study data-size digits --train-fraction 0.5", "--train-fraction: this study has --fractions"),
        (
            "study weights digits --contrastive-weight 0.5",
            "--contrastive-weight: this study draws the weights",
        ),
        ("compare", "settings: data must be given"),
    ):
        with pytest.raises(InputError, match=message):
            planned_study(*words.split())
    with pytest.raises(InputError, match="fractions: is not an argument of study kernels"):
        study("kernels", "digits", fractions=[0.5])
    with pytest.raises(InputError, match="study kernel is none of the studies: compare, study kernels"):
        study("kernel", "digits")  # type: ignore[arg-type]
