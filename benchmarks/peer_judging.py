"""One judge for all: the splits that peers are given, and the mAP of the scores that they return."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from kmcl.data import Dataset
from kmcl.evaluation.bootstrap import map_interval
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import label_average_precisions, mean_of_defined
from kmcl.runs.folder import RunFolder
from kmcl.version import __version__
from peer_process import Measured
from peer_results import PeerResult, Point


def write_splits(dataset: Dataset, folder: Path) -> None:
    """train.csv, val.csv and test.csv: absolute path of the image, then 1 or 0 for each label.

    No peer knows labels that are not annotated: they are written as absent, and not judged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "val", "test"):
        split = dataset.splits.get(name)
        if split is None:
            raise SystemExit(f"{dataset.name} has no split '{name}', which the peers need")
        paths = [str(Path(path).resolve()) for path in image_names(split.images)]
        if paths and not Path(paths[0]).is_file():
            raise SystemExit(f"{dataset.name} does not consist of image files: {paths[0]}")
        present = pd.DataFrame((split.targets == 1).astype(int), columns=list(dataset.labels))
        present.insert(0, "image", paths)
        present.to_csv(folder / f"{name}.csv", index=False)


def image_names(images: object) -> list[str]:
    return [images.name(index) for index in range(len(images))]  # type: ignore[attr-defined, arg-type]


def predictions_of(scores: npt.NDArray[np.float32], dataset: Dataset) -> Predictions:
    """Scores of test with the dataset's own targets."""
    test = dataset.splits["test"]
    groups = None if test.groups is None else tuple(str(group) for group in test.groups)
    names = tuple(image_names(test.images))
    return Predictions(dataset.labels, names, scores, test.targets, test.ignored, groups=groups)


def mean_average_precision(predictions: Predictions) -> float:
    return mean_of_defined(label_average_precisions(predictions))


def judged_run(
    name: str, peer: str, command: Sequence[str], folder: Path, measured: Measured, dataset: Dataset
) -> PeerResult:
    """The result of a finished process: every point that a peer recorded, or the end of a run of kmcl."""
    run = RunFolder(folder / "run")
    if run.metrics_file.is_file():
        described = {"version": __version__, "settings": chosen_settings(run)}
        ours = Predictions.load(run.predictions_file("test"))
        if ours.names != tuple(image_names(dataset.splits["test"].images)):
            raise SystemExit(f"{run.path} was tested on other images")
        scored = [(measured.seconds, ours.scores)]
    else:
        described = json.loads((folder / "peer.json").read_text(encoding="utf-8"))
        points = json.loads((folder / "points.json").read_text(encoding="utf-8"))
        scored = [(point["seconds"], np.load(folder / point["scores"])["scores"]) for point in points]
    judged = [(seconds, predictions_of(scores, dataset)) for seconds, scores in scored]
    interval = map_interval(judged[-1][1])
    return PeerResult(
        name=name,
        peer=peer,
        version=described["version"],
        settings=described["settings"],
        command=" ".join(command),
        points=[Point(seconds, mean_average_precision(predictions)) for seconds, predictions in judged],
        low=interval.low,
        high=interval.high,
        process_seconds=measured.seconds,
        peak_bytes=measured.peak_bytes,
        peak_rss=measured.peak_rss,
    )


def chosen_settings(run: RunFolder) -> str:
    """What the command chose, in a few words."""
    settings = run.read_settings()
    encoder, epochs = settings.encoder, settings.optimisation.epochs
    kept = f"{encoder.cached_views} cached views" if encoder.frozen_stages else "all stages trained"
    return f"chose {encoder.name}, {encoder.image_size} px, {kept}, {epochs} epochs"
