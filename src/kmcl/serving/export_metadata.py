"""What an exported file says of itself, beside its graph: everything needed to use it without this package.

It is JSON, under the key `kmcl` of an ONNX file's metadata and in the extra file `kmcl.json` of torch's.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from kmcl.data.companions import Companions
from kmcl.data.label_facts import Bands, check_label_facts, read_label_facts
from kmcl.errors import InputError

FORMAT = "kmcl-export-1"
METADATA_KEY = "kmcl"
LARGEST_IMAGE_SIZE = 8192

INPUT = "images"
OUTPUTS = ("score", "probability", "sigma")
"""`probability` is the calibrated score (the score itself for a model that was not calibrated); a model
without kernels has no `sigma`. Thresholds are of `score`."""

PREPROCESSING = (
    "images: batch x 3 x image_size x image_size, uint8, RGB, each resized to the square with antialiased "
    "bilinear interpolation; the graph itself divides by 255, subtracts mean and divides by std"
)


@dataclass(frozen=True)
class ExportMetadata:
    """labels, thresholds: in the order of the outputs.

    mean, std: constants of the normalisation, which the graph contains
    precision: "float32", or "int8" for dynamically quantised weights
    temperatures, biases: of the calibration, which the graph contains
    bands, companions: of the labels, as in `ModelDescription`; None where the model has none
    """

    labels: tuple[str, ...]
    thresholds: tuple[float, ...]
    image_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    method: str
    encoder: str
    precision: str = "float32"
    temperatures: tuple[float, ...] | None = None
    biases: tuple[float, ...] | None = None
    bands: Bands | None = None
    companions: Companions | None = None

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "preprocessing": PREPROCESSING, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, source: str) -> ExportMetadata:
        """Read what `to_json` wrote; raise InputError naming `source` for anything else."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
                raise InputError(f"its metadata are not of the format {FORMAT}")
            values.pop("preprocessing", None)
            for name in ("labels", "thresholds", "mean", "std"):
                values[name] = tuple(values[name])
            for name in ("temperatures", "biases"):
                values[name] = None if values.get(name) is None else tuple(values[name])
            values["bands"], values["companions"] = read_label_facts(values)
            metadata = cls(**values)
            metadata._check()
        except InputError as error:
            raise InputError(f"{source}: is no exported model: {error}") from None
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{source}: is no exported model: its metadata are broken: {error}") from error
        return metadata

    def _check(self) -> None:
        if not self.labels or any(not isinstance(label, str) for label in self.labels):
            raise InputError("labels must be at least one name")
        if len(self.thresholds) != len(self.labels):
            raise InputError(f"{len(self.thresholds)} thresholds for {len(self.labels)} labels")
        for values in (self.temperatures, self.biases):
            if values is not None and len(values) != len(self.labels):
                raise InputError(f"{len(values)} values of the calibration for {len(self.labels)} labels")
        numbers = (*self.thresholds, *self.mean, *self.std, *(self.temperatures or ()), *(self.biases or ()))
        for value in numbers:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise InputError(f"thresholds, mean, std and calibration must be numbers; got {value!r}")
        if self.temperatures is not None and min(self.temperatures) <= 0:
            raise InputError(f"temperatures must be above 0; got {min(self.temperatures)}")
        check_label_facts(self.bands, self.companions, len(self.labels))
        size = self.image_size
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_IMAGE_SIZE:
            raise InputError(f"image_size must be between 1 and {LARGEST_IMAGE_SIZE}; got {size!r}")
