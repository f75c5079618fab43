"""What the settings of a run tell its method."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from kmcl.losses import ObjectiveSettings
from kmcl.methods import MethodOptions
from kmcl.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor


def method_options(settings: TrainingSettings, word_vectors: Tensor | None = None) -> MethodOptions:
    """Each option has the setting of its name; word vectors decide the width of the label embeddings."""
    objective = ObjectiveSettings(
        **{field.name: getattr(settings, field.name) for field in fields(ObjectiveSettings)}
    )
    values = {
        field.name: getattr(settings, field.name)
        for field in fields(MethodOptions)
        if field.name != "objective"
    }
    options = MethodOptions(**values, objective=objective)
    return options if word_vectors is None else replace(options, label_embedding_dim=word_vectors.shape[1])
