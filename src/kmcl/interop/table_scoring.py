"""Tables of images in, tables of probabilities out: what Ray Data, Spark and pandas hand to a model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmcl.data.encoded_images import decode_bytes
from kmcl.errors import InputError
from kmcl.serving.engine import with_engine
from kmcl.serving.engine_choice import Engine
from kmcl.serving.loading import load
from kmcl.serving.onnx_predictor import OnnxPredictor
from kmcl.serving.predictions import Columns, Pixels, wide_columns
from kmcl.serving.throughput import best_batch_size, optimised

if TYPE_CHECKING:
    import pandas as pd

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedImage:
    """The bytes of an image file, wherever they came from."""

    name: str
    content: bytes

    def load(self, min_side: int | None = None) -> Pixels:
        return decode_bytes(self.content, self.name, min_side)


class TableScorer:
    """Scores the images of a table; what it returns has a row for each row, in their order.

    model:   run, model folder, hub name or .onnx file; where processes share the work, each opens it itself
    path:    column with the image's path, or with its name where `content` is given
    content: column with the bytes of the image file; None to read the file at the path
    engine:  see `kmcl predict`; a conversion is cached on every machine
    cores:   that onnxruntime uses
    """

    def __init__(
        self,
        model: str | Path,
        *,
        path: str = "path",
        content: str | None = None,
        engine: str = "auto",
        cores: int = 1,
    ) -> None:
        predictor = optimised(with_engine(load(model), Engine(engine), LOG.info))
        predictor.refuse_vectors("scoring a table")
        if isinstance(predictor, OnnxPredictor):
            predictor.use_cores(cores)
        self._predictor, self._path, self._content = predictor, path, content
        self._of_images = Columns(unfamiliarity=predictor.has_unfamiliarity, error=True).of_images
        self._names = wide_columns(path, predictor.labels, self._of_images)

    @property
    def columns(self) -> dict[str, type]:
        """The columns of the result: the path, a probability per label, unfamiliarity if given, error."""
        return {name: str if name in (self._path, "error") else float for name in self._names}

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        wanted = [self._path] if self._content is None else [self._path, self._content]
        if missing := [name for name in wanted if name not in rows.columns]:
            raise InputError(f"the table has no column {missing[0]!r}; it has {list(rows.columns)}")
        names = [str(name) for name in rows[self._path]]
        images: list[Any] = list(names)
        if self._content is not None:
            contents = rows[self._content]
            images = [EncodedImage(name, bytes(one)) for name, one in zip(names, contents, strict=True)]
        found = list(self._predictor.predict_each(images, best_batch_size(self._predictor)))
        table: dict[str, Any] = {self._path: names}
        for number, label in enumerate(self._predictor.labels):
            table[label] = [one.labels[number].probability if one.labels else float("nan") for one in found]
        if self._predictor.has_unfamiliarity:
            table["unfamiliarity"] = pd.Series([one.unfamiliarity for one in found], dtype=float)
        table["error"] = pd.Series([one.error for one in found], dtype=object)
        return pd.DataFrame(table)
