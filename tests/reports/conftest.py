"""Two small finished runs on the same images, and copies of them to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kmcl.runs.resolution import resolve_settings
from made_once import made_once


def train_small(folder: Path, method: str, **options: str) -> None:
    from settings_runs import train

    flags = {
        "encoder": "test_convnext",
        "weights": "none",
        "image_size": 32,
        "augmentation": "light",
        "epochs": 2,
        "method": method,
        **options,
        "data_options": {"size": 120},
    }
    train(resolve_settings("digits", flags=flags), folder)


@pytest.fixture(scope="session")
def kernel_run(tmp_path_factory) -> Path:
    return made_once(
        tmp_path_factory, "kernels", lambda folder: train_small(folder, "kmcl", kernel="isotropic")
    )


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory) -> Path:
    return made_once(tmp_path_factory, "linear", lambda folder: train_small(folder, "asl"))


@pytest.fixture
def breakable_run(kernel_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kernel_run, tmp_path / "broken run"))


@pytest.fixture(scope="session")
def report_of_two(kernel_run: Path, linear_run: Path, tmp_path_factory) -> Path:
    """The page of both runs, made once."""
    from kmcl.reports import ReportSettings, write_report

    settings = ReportSettings(saliency="disagreement", num_images=2)
    folder = made_once(
        tmp_path_factory, "report", lambda folder: write_report([kernel_run, linear_run], folder, settings)
    )
    return folder / "report.html"
