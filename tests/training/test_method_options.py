"""Settings reach the methods: every option by its name, and what depends on the data and the encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from kmcl.data.readers.digits import DIGIT_LABELS
from kmcl.encoders.weights import default_weights
from kmcl.errors import InputError
from kmcl.models.folder import read_description
from kmcl.options import METHOD_OPTIONS
from kmcl.options.methods import OF_KERNELS, MLGCNOptions
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import flat_values, resolve_settings, settings_from_values
from settings_runs import train

CHANGED: dict[str, Any] = {
    "kernel": "gaussian",
    "head_init": "paper",
    "normalise_dimension": False,
    "query_width": 64,
    "reconstruction_weight": 0.7,
    "detach_focus": True,
    "jaccard_in_log": True,
    "classification_weight": 0.6,
    "contrastive_weight": 0.8,
    "temperature": 0.9,
    "positive_focus": 1.5,
    "negative_focus": 2.5,
    "probability_margin": 0.01,
    "focal_focus": 3.5,
    "attention_heads": 6,
    "residual_weight": 0.7,
    "decoder_width": 64,
    "decoder_groups": 7,
    "decoder_layers": 5,
    "graph_width": 33,
    "graph_threshold": 0.11,
    "graph_neighbour_weight": 0.35,
    "label_embedding_dim": 21,
    "word_vectors": Path("vectors.txt"),
    "embedding_dim": 19,
    "angular_scale": 11.0,
    "angular_margin": 0.3,
    "positive_share": 0.6,
}
OPTIONS = [(name, option) for name, method in METHOD_OPTIONS.items() for option in method.option_names()]


@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_an_option_has_the_value_of_its_setting(method: str, option: str):
    needed = {"kernel": "isotropic"} if method == "kmcl" and option in OF_KERNELS else {}
    changed = resolve_settings("digits", flags={"method": method, **needed, option: CHANGED[option]})
    plain = resolve_settings("digits", flags={"method": method, **needed})
    assert type(changed.method) is METHOD_OPTIONS[method]
    assert getattr(changed.method, option) == CHANGED[option] != getattr(plain.method, option)
    others = {"exclude": {option}}
    assert changed.method.model_dump(**others) == plain.method.model_dump(**others)
    assert flat_values(changed)[option] == CHANGED[option]
    assert settings_from_values(flat_values(changed)) == changed


@pytest.mark.parametrize("option", OF_KERNELS)
def test_an_option_of_kernels_without_kernels_is_refused(option: str):
    message = rf"{option} .*: is about kernels, and kernel is none; give a kernel too, for instance isotropic"
    with pytest.raises(InputError, match=message):
        resolve_settings("digits", flags={option: CHANGED[option]})


@pytest.mark.parametrize(
    ("flags", "width"),
    [
        ({}, 128),  # the default encoder is pretrained
        ({"encoder": "small_convnet"}, 0),
        ({"weights": "none"}, 0),
        ({"weights": "none", "query_width": 64}, 64),
        ({"query_width": 0}, 0),
        ({"preset": "paper"}, 0),
    ],
)
def test_queries_are_for_encoders_that_are_pretrained_unless_told(flags, width: int):
    preset = flags.pop("preset", "default")
    settings = resolve_settings("digits", preset=preset, flags=flags)
    weights = settings.encoder.weights or default_weights(settings.encoder.name)
    options = settings.method.resolved(pretrained=weights != "none", labels=("a", "b"))
    assert options.query_width == width
    assert options.model_dump(exclude={"query_width"}) == settings.method.model_dump(exclude={"query_width"})


@pytest.mark.parametrize(("encoder", "width"), [("test_convnext", 0), ("weights.pth", 128)])
def test_a_run_decides_on_queries_by_its_weights(encoder: str, width: int, tmp_path: Path):
    flags = tiny("kmcl")
    if width:
        import timm

        torch.save(timm.create_model("test_convnext", num_classes=0).state_dict(), tmp_path / encoder)
        flags["weights"] = str(tmp_path / encoder)
    train(resolve_settings("digits", flags=flags), tmp_path / "run")
    assert read_description(tmp_path / "run" / "model").method.query_width == width
    assert RunFolder(tmp_path / "run").read_settings().method.query_width is None


@pytest.mark.parametrize(
    ("method", "option", "message"),
    [
        ("asl", "kernel", "method asl has no option kernel; it is an option of kmcl$"),
        ("bce", "temperature", "method bce has no option temperature; it is an option of kmcl, mulsupcon$"),
        ("kmcl", "word_vectors", "method kmcl has no option word_vectors; it is an option of mlgcn$"),
        ("csra", "decoder_width", "method csra has no option decoder_width; it is .* mldecoder, q2l, tdrg$"),
    ],
)
def test_an_option_of_another_method_is_refused(method: str, option: str, message: str):
    with pytest.raises(InputError, match=message):
        resolve_settings("digits", flags={"method": method, option: CHANGED[option]})


def test_an_option_that_no_method_has_is_refused():
    with pytest.raises(InputError, match=r"unknown setting 'kernle' \(did you mean 'kernel'\?\)"):
        resolve_settings("digits", flags={"kernle": "gaussian"})


def test_the_presets_options_are_for_the_methods_that_have_them():
    mulsupcon = resolve_settings("digits", "released", flags={"method": "mulsupcon"}).method
    assert (mulsupcon.contrastive_weight, mulsupcon.temperature) == (1 / 64, 0.17)
    assert resolve_settings("digits", "paper", flags={"method": "bce"}).method == METHOD_OPTIONS["bce"]()


def write_vectors(file: Path) -> torch.Tensor:
    vectors = torch.arange(50.0).view(10, 5) / 10
    lines = [
        f"{name} {' '.join(map(str, row.tolist()))}" for name, row in zip(DIGIT_LABELS, vectors, strict=True)
    ]
    file.write_text("\n".join(lines))
    return vectors


def tiny(method: str) -> dict[str, Any]:
    return {
        "method": method,
        "encoder": "test_convnext",
        "weights": "none",
        "image_size": 32,
        "augmentation": "light",
        "epochs": 1,
        "workers": 0,
        "data_options": {"size": 60},
    }


def test_word_vectors_decide_the_width_of_the_embeddings(tmp_path: Path):
    file = tmp_path / "vectors.txt"
    write_vectors(file)
    given = MLGCNOptions(word_vectors=file)
    assert given.resolved(pretrained=True, labels=DIGIT_LABELS).label_embedding_dim == 5
    assert MLGCNOptions().resolved(pretrained=True, labels=DIGIT_LABELS) == MLGCNOptions()
    assert given.for_model() == MLGCNOptions()


def test_word_vectors_are_the_label_embeddings_and_stay_as_they_are(tmp_path: Path):
    file = tmp_path / "vectors.txt"
    vectors = write_vectors(file)
    flags = tiny("mlgcn") | {"word_vectors": file, "graph_width": 8}
    train(resolve_settings("digits", flags=flags), tmp_path / "run")
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    torch.testing.assert_close(saved["head.label_embeddings"], vectors)
    described = read_description(tmp_path / "run" / "model").method
    assert (described.word_vectors, described.label_embedding_dim) == (None, 5)
    file = tmp_path / "short.txt"
    file.write_text(f"{DIGIT_LABELS[0]} 1 2\n")
    with pytest.raises(InputError, match="has no vector for the words of label 'one'"):
        train(resolve_settings("digits", flags=flags | {"word_vectors": file}), tmp_path / "other")
