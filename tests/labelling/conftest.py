"""Mislabelled squares, and models that look at them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from rich.console import Console

from coloured_squares import squares_classifier
from kmcl.data import Dataset, open_dataset
from kmcl.evaluation.label_rules import LabelRules
from kmcl.labelling.audit import Audit, audit_dataset
from kmcl.labelling.image_features import FeatureExtractor
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options import read_options
from mislabelled_squares import write_squares


@pytest.fixture(scope="package")
def table(tmp_path_factory) -> Path:
    return write_squares(tmp_path_factory.mktemp("squares"))


@pytest.fixture(scope="package")
def dataset(table: Path) -> Dataset:
    return open_dataset(f"table:{table}")


@pytest.fixture(scope="package")
def extractor() -> FeatureExtractor:
    return FeatureExtractor(squares_classifier(leans=False), Console(quiet=True))


@pytest.fixture(scope="package")
def audit(dataset: Dataset, extractor: FeatureExtractor) -> Audit:
    return audit_dataset(dataset, extractor, count=8)


@pytest.fixture(scope="package")
def model(tmp_path_factory) -> Path:
    """The folder of an untrained model with frozen stages."""
    torch.manual_seed(0)
    options = read_options({"name": "bce"}).for_model()
    description = ModelDescription(LabelRules(("green", "red")), options, "test_resnet", 32, frozen_stages=2)
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, build_classifier(description), description)
    return folder
