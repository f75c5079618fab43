"""`kmcl predict` as a process, with small chunks and a model without weights that takes its time.

python predicting_process.py OUTPUT PART SECONDS SOURCE...
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from brightness import Brightness
from kmcl.serving import prediction_job, prediction_run
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.image_sources import ImageSource
from kmcl.serving.prediction_files import PredictionFiles, choose_form
from kmcl.serving.prediction_run import PredictionRun
from kmcl.serving.predictions import Columns

CHUNK_IMAGES = 5


class Slow(Brightness):
    """seconds: of each image"""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def score(self, images: np.ndarray) -> BatchScores:
        time.sleep(self.seconds * len(images))
        return super().score(images)


def predict_to(output: Path, sources: list[str], part: str = "", seconds: float = 0.0) -> PredictionRun:
    predictor = Slow(seconds)
    form = choose_form(output, None, wide=False)
    files = PredictionFiles(form, Columns(error=True), predictor.labels)
    run = PredictionRun(predictor, ImageSource(sources), files, None, Engine.auto, 2, Console(stderr=True))
    run.write_to(output, prediction_job.Part.parse(part) if part else None)
    return run


if __name__ == "__main__":
    prediction_job.MAX_CHUNK_IMAGES = CHUNK_IMAGES
    prediction_run.model_digest = lambda predictor: "brightness"
    predict_to(Path(sys.argv[1]), sys.argv[4:], sys.argv[2], float(sys.argv[3]))
