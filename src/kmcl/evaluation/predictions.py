"""A model's predictions for a split with the targets: the input of every metric, and its file format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN, Split
from kmcl.data.groups import units_of_rows
from kmcl.errors import InputError
from kmcl.storage.archives import ARCHIVE_ERRORS
from kmcl.storage.atomic import write_with

FORMAT = "kmcl-predictions-1"

Scores = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

_OF_PAIRS = ("scores", "targets", "ignored", "sigma")
_OF_IMAGES = ("names", "groups", "features", "unfamiliarity", "feature_summary", *_OF_PAIRS)


class Units(NamedTuple):
    """What is drawn: images, or groups of images.

    of_image:  N indices of units.
    num_units: how many there are.
    """

    of_image: npt.NDArray[np.int64]
    num_units: int

    @property
    def are_groups(self) -> bool:
        """Whether two images share a group; without, a group is an image."""
        return self.num_units < len(self.of_image)


@dataclass(frozen=True)
class Predictions:
    """Scores and targets of N images and L labels.

    labels:   L label names, all different.
    names:    N image names.
    scores:   N x L float32, the probability of each label, in [0, 1].
    targets:  N x L int8, 1 present, 0 absent, -1 not annotated.
    ignored:  N x L bool or None, pairs that evaluation leaves out although they have a target.
    sigma:    N x L float32 or None, the standard deviation of each label's kernel, above 0.
    features: N x D float32 or None, the encoder's features.
    groups:   N names or None; images of one group (a patient) are not independent of each other. An image
              whose name is empty is in no group.
    unfamiliarity: N float32 or None, how unlike the training images each image is, in [0, 1].
    feature_summary: N x K float32 or None, a few finite numbers about each image's features.
    """

    labels: tuple[str, ...]
    names: tuple[str, ...]
    scores: Scores
    targets: npt.NDArray[np.int8]
    ignored: Mask | None = None
    sigma: Scores | None = None
    features: Scores | None = None
    groups: tuple[str, ...] | None = None
    unfamiliarity: Scores | None = None
    feature_summary: Scores | None = None

    def __post_init__(self) -> None:
        if len(set(self.labels)) != len(self.labels) or not self.labels:
            raise InputError(f"labels must be at least one and all different, got {list(self.labels)}")
        shape = (len(self.names), len(self.labels))
        _check_array("scores", self.scores, shape, np.float32)
        _check_array("targets", self.targets, shape, np.int8)
        self._check_range("scores", self.scores, (self.scores >= 0) & (self.scores <= 1), "in [0, 1]")
        self._check_range(
            "targets", self.targets, np.isin(self.targets, (0, 1, UNKNOWN)), f"0, 1 or {UNKNOWN} (unknown)"
        )
        if self.ignored is not None:
            _check_array("ignored", self.ignored, shape, np.bool_)
        if self.sigma is not None:
            _check_array("sigma", self.sigma, shape, np.float32)
            self._check_range(
                "sigma", self.sigma, (self.sigma > 0) & np.isfinite(self.sigma), "finite and above 0"
            )
        if self.features is not None and (self.features.ndim != 2 or len(self.features) != len(self.names)):
            raise InputError(
                f"features must have {len(self.names)} rows, one per image, got shape {self.features.shape}"
            )
        if self.groups is not None and len(self.groups) != len(self.names):
            raise InputError(f"groups must be {len(self.names)}, one per image, got {len(self.groups)}")
        if self.unfamiliarity is not None:
            self._check_unfamiliarity(self.unfamiliarity)
        if self.feature_summary is not None:
            self._check_summary(self.feature_summary)

    @classmethod
    def of_split(
        cls, labels: Sequence[str], split: Split, scores: Scores, rows: Rows | None = None, **of_model: Any
    ) -> Self:
        """Scores of a split, or of some rows of it, with what the split says of these images.

        of_model: other fields, of the model: sigma, features, unfamiliarity, feature_summary
        """
        rows = np.arange(len(split)) if rows is None else rows
        return cls(
            labels=tuple(labels),
            names=tuple(split.images.name(int(row)) for row in rows),
            scores=scores,
            targets=split.targets[rows],
            ignored=None if split.ignored is None else split.ignored[rows],
            groups=None if split.groups is None else tuple(map(str, split.groups[rows])),
            **of_model,
        )

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """The images of one part after those of the other, all of the same labels.

        What a part does not have, none has; but images without groups are each by itself, and where a part
        ignores no pair, all of its pairs take part.
        """
        if len({part.labels for part in parts}) != 1:
            raise InputError("predictions of different labels cannot be joined")
        if any(part.groups is not None for part in parts):
            parts = [replace(part, groups=part.groups or ("",) * len(part)) for part in parts]
        if any(part.ignored is not None for part in parts):
            parts = [part._with_ignored() for part in parts]
        values = {name: [getattr(part, name) for part in parts] for name in _OF_IMAGES}
        return cls(parts[0].labels, **{name: _joined(each) for name, each in values.items()})

    def take(self, rows: Rows) -> Self:
        """Some of the images, in the given order."""
        values = {name: getattr(self, name) for name in _OF_IMAGES}
        return replace(self, **{name: _taken(value, rows) for name, value in values.items()})

    def with_labels(self, labels: Sequence[str]) -> Self:
        """Some of the labels, in the given order."""
        columns = [self.labels.index(label) for label in labels]
        values = {name: getattr(self, name) for name in _OF_PAIRS}
        kept: dict[str, Any] = {
            name: None if value is None else np.ascontiguousarray(value[:, columns])
            for name, value in values.items()
        }
        return replace(self, labels=tuple(labels), **kept)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def num_labels(self) -> int:
        return len(self.labels)

    @cached_property
    def evaluated(self) -> Mask:
        """N x L: the pairs that take part in metrics, those neither unknown nor ignored."""
        known = np.asarray(self.targets != UNKNOWN)
        return _for_reading(known if self.ignored is None else known & ~self.ignored)

    @cached_property
    def positive(self) -> Mask:
        """N x L: the evaluated pairs whose label is present."""
        return _for_reading(np.asarray(self.targets == 1) & self.evaluated)

    @cached_property
    def negative(self) -> Mask:
        """N x L: the evaluated pairs whose label is absent."""
        return _for_reading(self.evaluated & ~self.positive)

    @cached_property
    def units(self) -> Units:
        """What resamples draw and guarantees count: groups of images, or images where there are none."""
        return sampling_units(self.groups, len(self))

    def save(self, path: Path | str) -> None:
        """Write a .npz file without pickled objects; an interrupted write leaves the old file intact."""
        path = Path(path)
        arrays: dict[str, Any] = {
            "format": np.array(FORMAT),
            "labels": np.array(self.labels, dtype=np.str_),
            "names": np.array(self.names, dtype=np.str_),
            "scores": self.scores,
            "targets": self.targets,
        }
        optional = {
            "ignored": self.ignored,
            "sigma": self.sigma,
            "features": self.features,
            "unfamiliarity": self.unfamiliarity,
            "feature_summary": self.feature_summary,
        }
        arrays |= {name: array for name, array in optional.items() if array is not None}
        if self.groups is not None:
            arrays["groups"] = np.array(self.groups, dtype=np.str_)
        write_with(path, lambda file: np.savez(file, **arrays))

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a file that `save` wrote; raises InputError naming the file if it is broken or not one."""
        path = Path(path)
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a file of predictions (not a regular file)")
        try:
            archive = np.load(path, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: not a file of predictions (a single array)")
            with archive:
                arrays = {name: archive[name] for name in archive.files}
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file of predictions") from error
        except InputError:
            raise
        except ARCHIVE_ERRORS as error:
            raise InputError(f"{path}: cannot be read as predictions ({error})") from error
        found = str(arrays.pop("format", "none"))
        if found != FORMAT:
            raise InputError(f"{path}: not a file of predictions (format {found!r}, expected {FORMAT!r})")
        try:
            labels, names = (_strings(arrays.pop(key)) for key in ("labels", "names"))
            groups = _strings(arrays.pop("groups")) if "groups" in arrays else None
            return cls(labels, names, **arrays, groups=groups)
        except (KeyError, TypeError) as error:
            raise InputError(f"{path}: an array is missing or unknown ({error})") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def _with_ignored(self) -> Self:
        if self.ignored is not None:
            return self
        return replace(self, ignored=np.zeros(self.targets.shape, dtype=np.bool_))

    def _check_unfamiliarity(self, values: Scores) -> None:
        if values.shape != (len(self.names),) or values.dtype != np.float32:
            raise InputError(
                f"unfamiliarity must be {len(self.names)} numbers of float32, one per image, "
                f"got shape {values.shape} of {values.dtype}"
            )
        wrong = np.flatnonzero(~((values >= 0) & (values <= 1)))
        if len(wrong):
            name = self.names[int(wrong[0])]
            raise InputError(f"unfamiliarity must be in [0, 1], got {values[wrong[0]]} for image {name!r}")

    def _check_summary(self, values: Scores) -> None:
        if values.ndim != 2 or len(values) != len(self.names) or values.dtype != np.float32:
            raise InputError(
                f"feature_summary must have {len(self.names)} rows of float32, one per image, "
                f"got shape {values.shape} of {values.dtype}"
            )
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            raise InputError(f"feature_summary must be finite; it is not for {self.names[int(wrong[0])]!r}")

    def _check_range(self, argument: str, array: npt.NDArray[Any], valid: Mask, bound: str) -> None:
        """Name the first image and label whose value is out of range (NaN is in no range)."""
        if valid.all():
            return
        row, column = (int(index) for index in np.argwhere(~valid)[0])
        raise InputError(
            f"{argument} must be {bound}, got {array[row, column]} "
            f"for image {self.names[row]!r} and label {self.labels[column]!r}"
        )


def sampling_units(groups: Sequence[str] | None, num_images: int) -> Units:
    """The units of `units_of_rows`, numbered in the order in which they occur."""
    units = units_of_rows(groups, num_images)
    first = np.unique(units, return_index=True)[1]
    return Units(np.argsort(np.argsort(first))[units], len(first))


def _for_reading(mask: Mask) -> Mask:
    """Every reader of a mask that is kept has the same one."""
    mask.flags.writeable = False
    return mask


def _joined(values: Sequence[Any]) -> Any:
    if any(value is None for value in values):
        return None
    return tuple(chain(*values)) if isinstance(values[0], tuple) else np.concatenate(values)


def _taken(values: Any, rows: Rows) -> Any:
    if isinstance(values, tuple):
        return tuple(values[int(row)] for row in rows)
    return None if values is None else values[rows]


def _strings(array: npt.NDArray[Any]) -> tuple[str, ...]:
    return tuple(str(name) for name in array)


def _check_array(
    argument: str, array: npt.NDArray[Any], shape: tuple[int, int], dtype: type[np.generic]
) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"{argument} must be {shape[0]} images x {shape[1]} labels of {np.dtype(dtype)}, "
            f"got shape {array.shape} of {array.dtype}"
        )
