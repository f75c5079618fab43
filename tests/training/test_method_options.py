"""Settings reach the methods: every option by its name, word vectors as label embeddings."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from kmcl.data.digits import DIGIT_LABELS
from kmcl.errors import InputError
from kmcl.methods import MethodOptions
from kmcl.training.method_options import method_options
from kmcl.training.settings import TrainingSettings, resolve_settings
from kmcl.training.train import train

CHANGED = {
    "kernel": "gaussian",
    "head_init": "paper",
    "normalise_dimension": False,
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
    "embedding_dim": 19,
}


@pytest.mark.parametrize("name", CHANGED)
def test_an_option_has_the_value_of_its_setting(name: str):
    options = method_options(resolve_settings("digits", flags={name: CHANGED[name]}))
    assert (
        getattr(options, name) == CHANGED[name] != getattr(method_options(resolve_settings("digits")), name)
    )


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
    assert method_options(resolve_settings("digits", preset=preset, flags=flags)).query_width == width


def test_every_option_has_a_setting():
    names = {field.name for field in fields(MethodOptions)} - {"objective"}
    assert names <= set(TrainingSettings.model_fields)
    settings = resolve_settings("digits", flags={"temperature": 0.9, "contrastive_weight": 0.8})
    objective = method_options(settings).objective
    assert (objective.temperature, objective.contrastive_weight) == (0.9, 0.8)


def test_word_vectors_are_the_label_embeddings_and_stay_as_they_are(tmp_path: Path):
    vectors = torch.arange(50.0).view(10, 5) / 10
    file = tmp_path / "vectors.txt"
    lines = [
        f"{name} {' '.join(map(str, row.tolist()))}" for name, row in zip(DIGIT_LABELS, vectors, strict=True)
    ]
    file.write_text("\n".join(lines))
    flags = {
        "method": "mlgcn",
        "word_vectors": file,
        "encoder": "test_convnext",
        "weights": "none",
        "image_size": 32,
        "augmentation": "light",
        "epochs": 1,
        "workers": 0,
        "graph_width": 8,
        "data_options": {"size": 60},
    }
    train(resolve_settings("digits", flags=flags), tmp_path / "run")
    saved = load_file(tmp_path / "run" / "model" / "model.safetensors")
    torch.testing.assert_close(saved["head.label_embeddings"], vectors)
    file.write_text(lines[0])
    with pytest.raises(InputError, match="has no vector for the words of label 'one'"):
        train(resolve_settings("digits", flags=flags), tmp_path / "other")
