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
    present: L decisions; the score of the prediction is the mean probability of the labels it names, or of
             their absence where it names none
    """
    path = image.absolute()
    if root is not None and path.is_relative_to(root.absolute()):
        path = path.relative_to(root.absolute())
    chosen = [label for label, is_there in zip(labels, present, strict=True) if is_there]
    score = float(probabilities[present].mean()) if chosen else float((1 - probabilities).min())
    result = {
        "from_name": CONTROL,
        "to_name": OBJECT,
        "type": "choices",
        "value": {"choices": chosen},
    }
    prediction = {"model_version": model_version, "score": round(score, 4), "result": [result]}
    return {
        "data": {OBJECT: prefix + quote(path.as_posix().lstrip("/"))},
        "predictions": [prediction],
    }
