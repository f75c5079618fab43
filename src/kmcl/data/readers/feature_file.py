"""What a file of feature vectors holds, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass

from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import LabelTargets
from kmcl.data.vectors import Vectors

KIND = "features"
"""Of the table in messages."""
VECTOR_NAMES = (
    *("features", "feature", "embeddings", "embedding", "vectors", "vector", "x"),
    *("sentence_embedding", "image_embedding", "text_embedding"),
)
"""Columns and arrays that are taken for the feature vectors."""


@dataclass(frozen=True)
class FeatureFile:
    """rows:         N x D, finite
    table:        its other columns, N rows
    targets:      where they are one array instead of columns
    label_names:  the labels in order, where the targets are texts with their names
    label_advice: the end of a sentence that says that there are no labels
    """

    rows: Vectors
    table: TableRows
    targets: LabelTargets | None = None
    label_names: tuple[str, ...] = ()
    label_advice: str = ""
