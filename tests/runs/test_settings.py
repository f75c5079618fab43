"""Settings: where they come from, and what a mistake in them looks like."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
import yaml

from kmcl.data.augmentation import AUGMENTATIONS
from kmcl.data.normalisation import parse_normalisation
from kmcl.errors import InputError
from kmcl.interop.released_datasets import RELEASED_DATASETS
from kmcl.kernels import KERNELS
from kmcl.losses import OBJECTIVES
from kmcl.methods.kmcl import INITIAL_VALUES, objective_settings
from kmcl.options import METHOD_OPTIONS
from kmcl.options.methods import KmclOptions
from kmcl.runs.resolution import (
    FLAT_NAMES,
    PRESETS,
    RELEASED_NORMALISATIONS,
    flat_values,
    preset_options,
    read_settings,
    resolve_settings,
    setting_names,
    settings_from_values,
)
from kmcl.runs.settings import GROUPS, DataSettings, TrainingSettings


def test_flags_override_the_file_which_overrides_the_preset(tmp_path: Path):
    file = tmp_path / "my.yaml"
    file.write_text("optimisation:\n  epochs: 7\nmethod:\n  name: kmcl\n  temperature: 0.3\n")
    settings = resolve_settings("digits", "paper", file, {"epochs": 9, "seed": None})
    assert settings.optimisation.epochs == 9
    assert settings.method.temperature == 0.3
    assert settings.method.contrastive_weight == 0.3  # the preset's
    assert settings.optimisation.seed == 0  # the default


def test_a_file_may_name_data_encoder_and_method_in_short(tmp_path: Path):
    file = tmp_path / "my.yaml"
    file.write_text("data: digits\nmethod: asl\nencoder: resnet18\nposthoc: none\n")
    settings = resolve_settings(None, file=file)
    assert settings == resolve_settings(
        "digits", flags={"method": "asl", "encoder": "resnet18", "posthoc": "none"}
    )
    assert (settings.data.spec, settings.method.name, settings.encoder.name) == ("digits", "asl", "resnet18")


def test_settings_survive_their_file(tmp_path: Path):
    flags = {
        "data_options": {"seed": "3"},
        "clip_norm": 1.5,
        "cache_dir": tmp_path,
        "frozen_stages": 2,
        "posthoc": "frozen_gp,kernel_vote:max_images=50",
    }
    settings = resolve_settings("table:x.csv", "released", None, flags)
    file = tmp_path / "settings.yaml"
    file.write_text(settings.to_yaml())
    assert read_settings(file) == settings
    assert [(part.name, part.max_images) for part in settings.posthoc] == [
        ("frozen_gp", 8192),
        ("kernel_vote", 50),
    ]
    assert set(yaml.safe_load(file.read_text())) == {*GROUPS, "method", "posthoc"}


@pytest.mark.parametrize("method", METHOD_OPTIONS)
def test_flat_values_give_the_settings_back(method: str):
    settings = resolve_settings("digits", "paper", flags={"method": method, "frozen_stages": 1, "seed": 4})
    values = flat_values(settings)
    assert settings_from_values(values) == settings
    assert set(values) <= set(setting_names())
    assert (values["seed"], values["frozen_stages"], values["method"]) == (4, 1, method)


def test_every_setting_has_one_flat_name_of_its_own():
    fields = [(group, field) for group, model in GROUPS.items() for field in model.model_fields]
    assert sorted(FLAT_NAMES.values()) == sorted(fields)
    options = {name for options in METHOD_OPTIONS.values() for name in options.option_names()}
    assert not options & {*FLAT_NAMES, "method", "posthoc"}
    assert set(TrainingSettings.model_fields) == {*GROUPS, "method", "posthoc"}


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({}, ["kernel_vote", "unfamiliarity"]),  # a Gaussian process needs frozen stages
        ({"frozen_stages": 2}, ["frozen_gp", "unfamiliarity"]),  # beside it a vote adds nothing
        ({"frozen_stages": 2, "posthoc": "none"}, []),
        ({"method": "asl", "frozen_stages": 2}, []),
        ({"method": "asl", "posthoc": "kernel_vote"}, ["kernel_vote"]),
    ],
)
def test_post_hoc_parts_are_the_methods_or_those_chosen(flags, names: list[str]):
    assert [part.name for part in resolve_settings("digits", flags=flags).posthoc] == names


def test_a_part_that_this_encoder_cannot_have_is_refused():
    with pytest.raises(InputError, match=r"posthoc frozen_gp needs frozen stages .* --frozen-stages"):
        resolve_settings("digits", flags={"method": "asl", "posthoc": "frozen_gp"})
    with pytest.raises(InputError, match=r"posthoc must be names of parts or none; got 3"):
        resolve_settings("digits", flags={"posthoc": 3})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "optimisation:\n  epoch: 3\n",
            r"unknown setting 'epoch' in optimisation \(did you mean 'epochs'\?\)",
        ),
        ("optimization:\n  epochs: 3\n", r"unknown group 'optimization' \(did you mean 'optimisation'\?\)"),
        ("data: x\noptimisation: {epochs: many}\n", r"my\.yaml: epochs: .*integer.*got 'many'"),
        ("data: x\noptimisation: {epochs: 0}\n", r"my\.yaml: epochs: .*greater than or equal to 1; got 0"),
        ("data: x\nmethod: {name: kmcl, kernel: cubic}\n", r"my\.yaml: kernel: .*'isotropic'.*got 'cubic'"),
        ("data: x\nmethod: {name: asl, kernel: gaussian}\n", r"my\.yaml: method asl has no option kernel"),
        ("data: x\nmethod: asll\n", r"method must be one of .*got 'asll' \(did you mean 'asl'\?\)"),
        ("data: x\nposthoc: kernel_vot\n", r"post-hoc part must be one of .*got 'kernel_vot'"),
        ("data: x\noptimisation: 3\n", r"my\.yaml: optimisation must hold its settings as name: value lines"),
        ("- a\n- b\n", r"my\.yaml: must hold groups of settings; it holds a list"),
        ("a: [\n", r"my\.yaml, line 2: is not YAML"),
        pytest.param("a: " + 5000 * "[", r"my\.yaml: is nested too deeply", id="nested"),
        ("", r"my\.yaml: data must be given"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, message: str):
    file = tmp_path / "my.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        resolve_settings(None, file=file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: digits\nmethod: kmcl\nepochs: 3\n", r"epochs belongs in the group optimisation, as epochs\."),
        ("data: digits\nweights: none\n", r"weights belongs in the group encoder, as weights\."),
        ("data_options: {size: 3}\n", r"data_options belongs in the group data, as options\."),
        ("data: digits\ntemperature: 0.3\n", r"temperature belongs in the group method, as temperature\."),
    ],
)
def test_a_flat_file_of_an_earlier_version_is_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    said = r" Settings are in groups since 0\.1\.0; a run of an earlier version cannot be continued"
    for read in (read_settings, lambda path: resolve_settings("digits", file=path)):
        with pytest.raises(InputError, match=rf"settings\.yaml: {message}{said}"):
            read(file)


def test_an_unknown_preset_and_a_missing_file_are_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"preset must be one of .* got 'papper' \(did you mean 'paper'\?\)"):
        resolve_settings("digits", "papper")
    with pytest.raises(InputError, match=r"none\.yaml: cannot be read: No such file"):
        resolve_settings("digits", file=tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["kernels", "paper", "released"])
def test_presets_have_the_objectives_of_the_losses(name):
    assert objective_settings(resolve_settings("digits", name).method) == OBJECTIVES[name]


def test_the_papers_recipe():
    paper = resolve_settings("digits", "paper")
    recipe = paper.optimisation
    assert (recipe.learning_rate, recipe.weight_decay, recipe.warmup_fraction) == (2e-4, 1e-4, 0.2)
    assert (recipe.epochs, recipe.moving_average, recipe.moving_average_warmup) == (40, 0.9997, False)
    assert (paper.data.augmentation, paper.encoder.name, paper.posthoc) == ("paper", "tresnet_m", ())
    assert (paper.method.head_init, paper.method.normalise_dimension) == ("paper", False)


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize(
    ("flags", "size"),
    [
        ({}, 224),
        ({"encoder": "tresnet_m"}, 224),
        ({"encoder": "tresnet_v2_l"}, 448),
        ({"encoder": "tresnet_v2_l", "image_size": 320}, 320),
        ({"encoder": "test_resnet"}, None),
    ],
)
def test_image_size_of_the_papers_models(preset: str, flags, size: int | None):
    assert resolve_settings("voc2007:d", preset, flags=flags).encoder.image_size == size


@pytest.mark.parametrize(
    ("data", "paper", "released"),
    [
        ("voc2007:d", "imagenet", "imagenet"),
        ("table:x.csv", "imagenet", "imagenet"),
        ("chestxray14:d", "dataset", "0.50576189,1"),
        ("adp:d", "dataset", "0.81233799,0.64032477,0.81902153,0.18129702,0.25731668,0.16800649"),
    ],
)
def test_normalisation_of_the_papers_datasets(data: str, paper: str, released: str):
    assert resolve_settings(data, "paper").encoder.normalisation == paper
    assert resolve_settings(data, "released").encoder.normalisation == released
    assert resolve_settings(data).encoder.normalisation == "encoder"
    assert (
        resolve_settings(data, "paper", flags={"normalisation": "encoder"}).encoder.normalisation == "encoder"
    )


def test_constants_of_the_released_code_are_those_of_its_checkpoints():
    for name, text in RELEASED_NORMALISATIONS.items():
        numbers, expected = parse_normalisation(text), RELEASED_DATASETS[name]
        each = 3 // (len(numbers) // 2)
        assert numbers[: len(numbers) // 2] * each == expected.mean
        assert numbers[len(numbers) // 2 :] * each == expected.std


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("imagnet", r"got 'imagnet' \(did you mean 'imagenet'\?\)"),
        ("0.5", r"two numbers or six .* got '0\.5'"),
        ("0.5,0.5,0.5,0.2", "two numbers or six"),
        ("0.5,0", r"stds above 0; got '0\.5,0'"),
        ("nan,1", "finite means"),
    ],
)
def test_mistakes_in_a_normalisation_are_named(text: str, message: str):
    with pytest.raises(InputError, match=rf"settings: normalisation must be .*{message}"):
        resolve_settings("digits", flags={"normalisation": text})


def test_choices_are_those_of_the_tables():
    def choices(model, name: str) -> set[str]:
        return set(get_args(model.model_fields[name].annotation))

    assert choices(KmclOptions, "kernel") == {"none", *KERNELS}
    assert choices(KmclOptions, "head_init") == set(INITIAL_VALUES)
    assert choices(DataSettings, "augmentation") == set(AUGMENTATIONS)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_know_only_settings(name: str):
    assert set(PRESETS[name]) <= {*FLAT_NAMES, "method", "posthoc"}
    assert set(preset_options(name)) <= set(KmclOptions.model_fields)
    for method in METHOD_OPTIONS:
        resolve_settings("digits", name, flags={"method": method})


def test_a_part_in_a_file_must_have_a_name(tmp_path: Path):
    file = tmp_path / "settings.yaml"
    file.write_text("data: digits\nposthoc:\n- kernel_vote\n")
    with pytest.raises(InputError, match=r"posthoc: a part must have its name .* got 'kernel_vote'"):
        resolve_settings(None, file=file)
