"""What a model predicts: for one label of an image, for an image, for a list of images.

Both an image and a list turn into a pandas DataFrame and display themselves in a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsIndex, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
from PIL import Image

from kmcl.errors import InputError
from kmcl.evaluation.unfamiliarity import UNFAMILIAR_FROM

if TYPE_CHECKING:
    import pandas as pd

Pixels = npt.NDArray[np.uint8]
Vectors = npt.NDArray[np.float32]
Samples = Pixels | Vectors
"""What a model scores: images, or feature vectors where it takes these."""


@runtime_checkable
class NamedImage(Protocol):
    """An image that is decoded when it is needed: of a store, of an archive."""

    @property
    def name(self) -> str: ...

    def load(self, min_side: int | None = None) -> Pixels:
        """See `kmcl.data.dataset.ImageStore.load`."""
        ...


ImageLike = str | Path | Image.Image | Samples | NamedImage


@dataclass(frozen=True)
class LabelPrediction:
    """What the model predicts for one label of one image.

    probability: calibrated; the score itself for a model that was not calibrated
    low, high:   of the 90 % probability interval; None for a model that was not calibrated
    threshold:   the probability from which the label counts as present
    present:     probability >= threshold
    score:       the output of the model before calibration, on which metrics are computed
    sigma:       standard deviation of the label's kernel; None for a model without kernels
    unsure:      whether the decision is left to a person; None where that was not asked for
    """

    label: str
    probability: float
    low: float | None
    high: float | None
    threshold: float
    present: bool
    score: float
    sigma: float | None
    unsure: bool | None = None

    @property
    def error_probability(self) -> float:
        """How probable it is that the decision is wrong, if the probability is right."""
        return 1 - self.probability if self.present else self.probability


class Columns(NamedTuple):
    """Which of the columns that not every table has are wanted.

    num_features: how many numbers of an image's `feature_summary`
    """

    sigma: bool = False
    unsure: bool = False
    unfamiliarity: bool = False
    error: bool = False
    num_features: int = 0

    @property
    def of_labels(self) -> list[str]:
        """The fields of a label, in their order."""
        wanted = self._asdict()
        return [field.name for field in fields(LabelPrediction) if wanted.get(field.name, True)]

    @property
    def of_images(self) -> list[str]:
        """The columns of an image beside its name."""
        features = [f"feature_{number}" for number in range(1, self.num_features + 1)]
        return [*["unfamiliarity"] * self.unfamiliarity, *features, *["error"] * self.error]

    def values_of(self, image: ImagePrediction) -> list[Any]:
        """What an image has in the columns `of_images`."""
        features = image.feature_summary or (None,) * self.num_features
        return [
            *[image.unfamiliarity] * self.unfamiliarity,
            *features[: self.num_features],
            *[image.error] * self.error,
        ]


def wide_columns(name: str, labels: Sequence[str], others: Sequence[str]) -> list[str]:
    """The columns of a table with a row per image: its name, a probability per label, and what else is known.

    InputError with a label that has the name of another column.
    """
    if taken := sorted({name, *others}.intersection(labels)):
        raise InputError(
            f"label {taken[0]!r} has the name of another column of a table with a column per label; rename "
            "one of them, or write a row per label"
        )
    return [name, *labels, *others]


@dataclass(frozen=True)
class ImagePrediction:
    """One image: its labels in the model's order, or why it could not be read.

    source: the path or image that was predicted, for display; None where it is not known
    unfamiliarity: how unlike the training images it is, from 0 to 1: the share of val that is less unlike
                   them; None for a model without that post-hoc part
    feature_summary: a few numbers about its features, for `kmcl monitor`; None for a model without that part
    """

    name: str
    labels: tuple[LabelPrediction, ...]
    error: str | None = None
    source: ImageLike | None = field(default=None, repr=False, compare=False)
    unfamiliarity: float | None = None
    feature_summary: tuple[float, ...] | None = field(default=None, repr=False)

    @property
    def is_unfamiliar(self) -> bool:
        """Whether the image counts as unlike the training images, which 5 % of val do."""
        return self.unfamiliarity is not None and self.unfamiliarity >= UNFAMILIAR_FROM

    def leaving(self, cutoff: float) -> ImagePrediction:
        """With the decisions marked whose probability of an error is above the cut-off."""
        labels = (replace(label, unsure=label.error_probability > cutoff) for label in self.labels)
        return replace(self, labels=tuple(labels))

    @property
    def present(self) -> list[LabelPrediction]:
        """The labels the image has, the most probable first."""
        return sorted((label for label in self.labels if label.present), key=lambda label: -label.probability)

    def to_frame(self, wide: bool = False, sigma: bool = False) -> pd.DataFrame:
        """A DataFrame of this image alone; see `PredictionList.to_frame`."""
        return PredictionList([self]).to_frame(wide, sigma)

    def _repr_html_(self) -> str:
        return PredictionList([self])._repr_html_()


class PredictionList(list[ImagePrediction]):
    """Predictions of several images, in their order: a list that becomes a table or a notebook's output."""

    @property
    def errors(self) -> list[str]:
        """Why images could not be read, one message for each of those."""
        return [prediction.error for prediction in self if prediction.error is not None]

    def to_frame(self, wide: bool = False, sigma: bool = False) -> pd.DataFrame:
        """The predictions as a pandas DataFrame.

        wide:  False for one row per image and label, with the columns image, label, probability, low, high
               (NaN without calibration), threshold, present and score; an unreadable image has no row.
               True for one row per image, named by the index, and one column of probabilities per label;
               an unreadable image has NaN in all of them.
               The last column is the image's unfamiliarity, if the model gives it.
        sigma: with a column sigma too (NaN without kernels), where there are columns of that kind.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise InputError("a DataFrame needs pandas: pip install pandas") from error
        if wide:
            return self._wide_frame()
        unsure = any(label.unsure is not None for one in self for label in one.labels)
        wanted = Columns(sigma, unsure, self._has_unfamiliarity)
        columns = [*wanted.of_labels, *wanted.of_images]
        rows = [
            {"image": one.name, **asdict(label), "unfamiliarity": one.unfamiliarity}
            for one in self
            for label in one.labels
        ]
        frame = pd.DataFrame(rows, columns=["image", *columns])
        return frame.astype({name: bool if name in ("present", "unsure") else float for name in columns[1:]})

    def _wide_frame(self) -> pd.DataFrame:
        import pandas as pd

        labels = next(([label.label for label in one.labels] for one in self if one.error is None), [])
        rows = [
            [float("nan")] * len(labels)
            if one.error is not None
            else [label.probability for label in one.labels]
            for one in self
        ]
        index = pd.Index([one.name for one in self], name="image")
        frame = pd.DataFrame(rows, index=index, columns=labels, dtype=float)
        if self._has_unfamiliarity:
            unfamiliarity = pd.Series([one.unfamiliarity for one in self], index=index, dtype=float)
            frame.insert(len(labels), "unfamiliarity", unfamiliarity.to_numpy(), allow_duplicates=True)
        return frame

    @property
    def _has_unfamiliarity(self) -> bool:
        return any(one.unfamiliarity is not None for one in self)

    def _repr_html_(self) -> str:
        from kmcl.serving.prediction_html import predictions_to_html

        return predictions_to_html(self)

    @overload
    def __getitem__(self, index: SupportsIndex) -> ImagePrediction: ...
    @overload
    def __getitem__(self, index: slice) -> PredictionList: ...
    def __getitem__(self, index: SupportsIndex | slice) -> ImagePrediction | PredictionList:
        found: Any = super().__getitem__(index)
        return PredictionList(found) if isinstance(index, slice) else found

    def __add__(self, other: Iterable[ImagePrediction]) -> PredictionList:  # type: ignore[override]
        return PredictionList([*self, *other])
