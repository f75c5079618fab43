"""What the settings of a run tell its method."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from kmcl.losses import ObjectiveSettings
from kmcl.methods import MethodOptions
from kmcl.models.weights import default_weights
from kmcl.training.settings import TrainingSettings

if TYPE_CHECKING:
    from torch import Tensor

QUERY_WIDTH = 128


def method_options(settings: TrainingSettings, word_vectors: Tensor | None = None) -> MethodOptions:
    """Each option has the setting of its name; word vectors decide the width of the label embeddings.

    Queries need a map worth looking at: where nobody chose, an encoder that starts from nothing has none.
    """
    objective = ObjectiveSettings(
        **{field.name: getattr(settings, field.name) for field in fields(ObjectiveSettings)}
    )
    values = {
        field.name: getattr(settings, field.name)
        for field in fields(MethodOptions)
        if field.name != "objective"
    }
    if settings.query_width is None:
        weights = settings.weights or default_weights(settings.encoder)
        values["query_width"] = 0 if weights == "none" else QUERY_WIDTH
    options = MethodOptions(**values, objective=objective)
    return options if word_vectors is None else replace(options, label_embedding_dim=word_vectors.shape[1])
