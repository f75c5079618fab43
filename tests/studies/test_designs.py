"""What the studies compare, and how their commands read."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.runs.resolution import settings_from_values
from kmcl.studies.command import command_of
from kmcl.studies.designs import (
    ALL_TERMS,
    OF_SIZES,
    kernel_variants,
    size_variants,
    sizes_of,
    term_variants,
)
from kmcl.studies.plan import StudyPlan, enter_plan, make_plan
from kmcl.studies.variants import parse_variants

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
    assert sizes_of(variants) == (methods, (0.1, 0.5, 1.0), True)
    assert sizes_of(size_variants(methods, (0.5,), VALUES["epochs"], same_steps=False)) == (
        methods,
        (0.5,),
        False,
    )


@pytest.mark.parametrize(
    ("fractions", "message"),
    [((0.0, 1.0), "at most 1; got 0"), ((0.5, 0.5), "must be different numbers"), ((), "different numbers")],
)
def test_sizes_that_are_none_are_refused(fractions: tuple[float, ...], message: str):
    with pytest.raises(InputError, match=message):
        size_variants(parse_variants(["asl"]), fractions, VALUES["epochs"], same_steps=False)


@pytest.mark.parametrize(
    "plan",
    [
        make_plan("study terms", VALUES, term_variants(VALUES), (0, 1), ALL_TERMS),
        make_plan("study kernels", VALUES, kernel_variants(), (2,), "isotropic"),
        make_plan(
            OF_SIZES,
            WITH_KERNELS,
            size_variants(
                parse_variants(["bce,kmcl:temperature=1"]), (0.2, 1), VALUES["epochs"], same_steps=True
            ),
            (0,),
        ),
    ],
    ids=lambda plan: plan.kind,
)
def test_the_command_of_a_study_makes_it_again(
    plan: StudyPlan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    seen: list[StudyPlan] = []
    monkeypatch.setattr("kmcl.cli.study_arguments.run_and_show", lambda plan, *rest: seen.append(plan))
    app = make_app()
    result = CliRunner().invoke(app, shlex.split(command_of(plan))[1:])
    assert result.exit_code == 0, result.exception
    assert seen == [plan]
    enter_plan(tmp_path, plan)
    assert CliRunner().invoke(app, [*plan.kind.split(), "--resume", str(tmp_path)]).exit_code == 0
    assert seen == [plan, plan]
    wrong = CliRunner().invoke(app, ["compare", "--resume", str(tmp_path), "--epochs", "3"])
    assert "--resume continues a study with the settings it was started with" in str(wrong.exception)
