"""What every peer is given and what it leaves behind; its clock stops while test is scored."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

STARTED_VARIABLE = "KMCL_PEER_STARTED"
"""Seconds since the epoch at which the driver started the process: imports belong to the time of a peer."""


@dataclass
class PeerRun:
    """One run of a peer.

    train, val, test: tables with the column `image` (a path) and one column of 0 and 1 for each label.
    output:           its folder: points.json, peer.json and scores-N.npz, and whatever the peer writes.
    scoring:          seconds spent on scores of test, which are not counted.
    """

    train: pd.DataFrame
    val: pd.DataFrame
    test: pd.DataFrame
    output: Path
    image_size: int
    epochs: int
    seed: int
    started: float = field(default_factory=lambda: float(os.environ.get(STARTED_VARIABLE, time.time())))
    scoring: float = 0.0
    points: list[dict[str, float | str]] = field(default_factory=list)

    @property
    def labels(self) -> list[str]:
        return [name for name in self.train.columns if name != "image"]

    def describe(self, version: str, settings: str) -> None:
        """Say which version ran with which settings, for the table."""
        text = json.dumps({"version": version, "settings": settings}, indent=2)
        (self.output / "peer.json").write_text(text, encoding="utf-8")

    def record(self, score: Callable[[], npt.NDArray[np.generic]]) -> None:
        """Keep the scores (N x L, in [0, 1]) that `score` returns for test, and the time without scoring."""
        paused = time.time()
        scores = np.asarray(score(), dtype=np.float32)
        if scores.shape != (len(self.test), len(self.labels)):
            raise ValueError(f"scores of shape {scores.shape} for {len(self.test)} images, {self.labels}")
        name = f"scores-{len(self.points) + 1:02d}.npz"
        np.savez(self.output / name, scores=scores)
        self.points.append({"seconds": paused - self.started - self.scoring, "scores": name})
        (self.output / "points.json").write_text(json.dumps(self.points, indent=2), encoding="utf-8")
        self.scoring += time.time() - paused


def open_peer_run() -> PeerRun:
    """The run that the command line describes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path, help="folder with train.csv, val.csv and test.csv")
    parser.add_argument("output", type=Path)
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    arguments, _ = parser.parse_known_args()  # flags of a single peer are read by that peer
    train, val, test = (pd.read_csv(arguments.data / f"{name}.csv") for name in ("train", "val", "test"))
    return PeerRun(train, val, test, arguments.output, arguments.image_size, arguments.epochs, arguments.seed)
