"""Settings: where they come from, and what a mistake in them looks like."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from kmcl.data.augmentation import AUGMENTATIONS
from kmcl.errors import InputError
from kmcl.kernels import KERNELS
from kmcl.losses import OBJECTIVES, ObjectiveSettings
from kmcl.models import INITIAL_VALUES
from kmcl.training.settings import PRESETS, TrainingSettings, resolve_settings


def test_flags_override_the_file_which_overrides_the_preset(tmp_path: Path):
    file = tmp_path / "my.yaml"
    file.write_text("epochs: 7\ntemperature: 0.3\n")
    settings = resolve_settings("digits", "paper", file, {"epochs": 9, "seed": None})
    assert settings.epochs == 9
    assert settings.temperature == 0.3
    assert settings.contrastive_weight == 0.3  # the preset's
    assert settings.seed == 0  # the default


def test_a_file_may_name_the_data(tmp_path: Path):
    file = tmp_path / "my.yaml"
    file.write_text("data: digits\n")
    assert resolve_settings(None, file=file).data == "digits"


def test_settings_survive_their_file(tmp_path: Path):
    settings = resolve_settings(
        "table:x.csv", "released", None, {"data_options": {"seed": "3"}, "clip_norm": 1.5}
    )
    file = tmp_path / "settings.yaml"
    file.write_text(settings.to_yaml())
    assert TrainingSettings.from_yaml(file) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3\n", r"my\.yaml: unknown setting 'epoch'; did you mean 'epochs'\?"),
        ("data: x\nepochs: many\n", r"my\.yaml: epochs: .*integer.*got 'many'"),
        ("data: x\nepochs: 0\n", r"my\.yaml: epochs: .*greater than or equal to 1; got 0"),
        ("data: x\nkernel: cubic\n", r"my\.yaml: kernel: .*'isotropic'.*got 'cubic'"),
        ("- a\n- b\n", r"my\.yaml: must hold settings as name: value lines; it holds a list"),
        ("a: [\n", r"my\.yaml, line 2: is not YAML"),
        ("", r"data must be given"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, message: str):
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        resolve_settings(None, file=file)


def test_an_unknown_preset_and_a_missing_file_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"preset must be one of .* got 'papper'; did you mean 'paper'\?"):
        resolve_settings("digits", "papper")
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file"):
        resolve_settings("digits", file=tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["paper", "released"])
def test_presets_have_the_objectives_of_the_losses(name):
    settings = resolve_settings("digits", name)
    found = ObjectiveSettings(
        **{field: getattr(settings, field) for field in ObjectiveSettings.__dataclass_fields__}
    )
    assert found == OBJECTIVES[name]


def test_the_papers_recipe():
    paper = resolve_settings("digits", "paper")
    assert (paper.learning_rate, paper.weight_decay, paper.warmup_fraction) == (2e-4, 1e-4, 0.2)
    assert (paper.epochs, paper.moving_average, paper.moving_average_warmup) == (40, 0.9997, False)
    assert (paper.augmentation, paper.head_init, paper.normalise_dimension) == ("paper", "paper", False)


def test_choices_are_those_of_the_tables():
    def choices(name: str) -> set[str]:
        return set(get_args(TrainingSettings.model_fields[name].annotation))

    assert choices("kernel") == set(KERNELS)
    assert choices("head_init") == set(INITIAL_VALUES)
    assert choices("augmentation") == set(AUGMENTATIONS)


def test_presets_know_only_settings():
    for preset in PRESETS.values():
        assert set(preset) <= set(TrainingSettings.model_fields)
