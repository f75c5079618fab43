"""The metadata of an exported file: everything needed to use it without this package.

JSON, under the key `kmcl` of an ONNX file's metadata.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, check_numbers

FORMAT = "kmcl-export-2"
FORMER_FORMAT = "kmcl-export-1"
METADATA_KEY = "kmcl"
LARGEST_IMAGE_SIZE = 8192

INPUT, VECTOR_INPUT = "images", "features"
OUTPUTS = ("score", "probability", "sigma", "unfamiliarity", "feature_summary")
"""In their order. `probability` is the calibrated score (the score itself for a model that was not
calibrated). Thresholds apply to `probability`. `unfamiliarity` is between 0 and 1. `feature_summary`
has a few numbers per image, by which `kmcl monitor` compares images; the others but `unfamiliarity` have one
for each label."""
OPTIONAL = ("sigma", "unfamiliarity", "feature_summary")
"""A model without kernels has no `sigma`, one without the post-hoc part `unfamiliarity` not the others."""

PREPROCESSING = (
    "images: batch x 3 x image_size x image_size, uint8, RGB, each resized to the square with antialiased "
    "bilinear interpolation; the graph itself divides by 255, subtracts mean and divides by std"
)
VECTOR_PREPROCESSING = (
    "features: batch x feature_dim, float32; the graph itself subtracts mean and divides by std"
)
LARGEST_VECTOR = 1_000_000


@dataclass(frozen=True)
class ExportMetadata:
    """rules: the labels in the order of the outputs, their thresholds, and the calibration, which the graph
    contains.

    mean, std: constants of the normalisation, which the graph contains
    precision: "float32", or "int8" for dynamically quantised weights
    feature_dim: how many numbers a feature vector has, where the model takes these; image_size is 0 then
    """

    rules: LabelRules
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    method: str
    encoder: str
    precision: str = "float32"
    feature_dim: int | None = None

    @property
    def input_name(self) -> str:
        """Of the graph."""
        return INPUT if self.feature_dim is None else VECTOR_INPUT

    def to_json(self) -> str:
        """JSON text. `thresholds` are those of `probability`, for other programs; those of the scores, from
        which they follow, are in the rules as `score_thresholds`."""
        values = asdict(self) | {"rules": self.rules.to_json()}
        values["rules"]["score_thresholds"] = values["rules"].pop("thresholds")
        thresholds = self.rules.exact_thresholds.tolist()
        preprocessing = PREPROCESSING if self.feature_dim is None else VECTOR_PREPROCESSING
        return json.dumps(
            {"format": FORMAT, "preprocessing": preprocessing, "thresholds": thresholds, **values}
        )

    @classmethod
    def from_json(cls, text: str, source: str) -> ExportMetadata:
        """Read what `to_json` wrote; raise InputError naming `source` for anything else."""
        try:
            values = json.loads(text)
            found = values.pop("format", None) if isinstance(values, dict) else None
            if found == FORMER_FORMAT:
                raise _FormerFormatError
            if found != FORMAT:
                raise InputError(f"its metadata are not of the format {FORMAT}")
            for name in ("preprocessing", "thresholds"):  # what follows from the rest
                values.pop(name, None)
            if isinstance(rules := values["rules"], dict) and "score_thresholds" in rules:
                rules["thresholds"] = rules.pop("score_thresholds")
            values["rules"] = LabelRules.from_json(rules)
            for name in ("mean", "std"):
                values[name] = tuple(values[name])
            metadata = cls(**values)
            metadata._check()
        except _FormerFormatError:
            raise InputError(
                f"{source}: was written by a version of kmcl before 0.1.0; train the model again with this "
                "one and export it"
            ) from None
        except InputError as error:
            raise InputError(f"{source}: is not an exported model: {error}") from None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(
                f"{source}: is not an exported model: its metadata are broken: {error}"
            ) from error
        return metadata

    def _check(self) -> None:
        for name in ("mean", "std"):
            check_numbers(name, getattr(self, name), len(getattr(self, name)))
        size, width = self.image_size, self.feature_dim
        if width is not None:
            if type(width) is not int or not 1 <= width <= LARGEST_VECTOR:
                raise InputError(f"feature_dim must be between 1 and {LARGEST_VECTOR}; got {width!r}")
            if type(size) is not int or size != 0:
                raise InputError(f"image_size must be 0 with feature_dim; got {size!r}")
            return
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_IMAGE_SIZE:
            raise InputError(f"image_size must be between 1 and {LARGEST_IMAGE_SIZE}; got {size!r}")


class _FormerFormatError(Exception):
    """The file is of an earlier format."""
