"""Images as tasks of Label Studio, with predictions that people correct instead of starting from nothing.

The project needs the interface of `labeling_interface`, and local files or the images' web addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from kmcl.data.writers.labelstudio import CONTROL, OBJECT
from kmcl.evaluation.ranking import Values
from kmcl.serving.label_studio_predictions import ChoicesControl, make_prediction


def make_task(
    image: Path,
    root: Path | None,
    prefix: str,
    labels: Sequence[str],
    probabilities: Values,
    present: np.typing.NDArray[np.bool_],
    model_version: str,
) -> dict[str, Any]:
    """A task with one prediction: the labels that the model finds.

    root:   the folder that paths start from; None for absolute paths
    prefix: what the path of an image is appended to, as LOCAL_FILES or a web address
    probabilities, present: L values; see `make_prediction`
    """
    path = image.absolute()
    if root is not None and path.is_relative_to(root.absolute()):
        path = path.relative_to(root.absolute())
    control = ChoicesControl(CONTROL, OBJECT, OBJECT, {label: label for label in labels})
    prediction = make_prediction([control], labels, probabilities, present, model_version)
    return {
        "data": {OBJECT: prefix + quote(path.as_posix().lstrip("/"))},
        "predictions": [prediction],
    }
