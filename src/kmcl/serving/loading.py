"""Loading a trained model in any of its forms."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from kmcl.errors import InputError
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.label_rules import LabelRules
from kmcl.progress import say
from kmcl.runs.guarantee import cutoff_of_run, rules_for_wish
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.onnx_predictor import OnnxPredictor

if TYPE_CHECKING:
    from torch import nn

    from kmcl.serving.predictor import Predictor

EXPORTED_SUFFIX = ".onnx"
PICKLE_SUFFIXES = {".pth", ".pt", ".ckpt", ".bin", ".pkl"}


def load(
    source: str | PathLike[str], encoder: nn.Module | None = None, guarantee: str | None = None
) -> ImagePredictor:
    """Load a trained model: a run folder, a model folder, `owner/name` on the model hub, or an .onnx file.

    A folder takes precedence over a hub model of the same name. An exported .onnx file is loaded without
    torch and gives an `OnnxPredictor`, everything else a `Predictor`.

    encoder:   for a model whose encoder is the user's own class: an instance of it, which gets the weights
    guarantee: a rate that the thresholds keep, as in "recall=0.9", chosen on the val predictions of a run
               folder; other models must have been trained or exported with it
    """
    path = Path(source)
    if not _is_exported(path):
        return load_in_torch(source, encoder, guarantee)
    if encoder is not None:
        raise InputError(f"{path}: an exported model contains its encoder; load it without `encoder`")
    predictor = OnnxPredictor(path)
    if guarantee is not None:
        _rules_with(predictor.rules, guarantee, path)  # refuses any but its own
    return predictor


def load_in_torch(
    source: str | PathLike[str], encoder: nn.Module | None = None, guarantee: str | None = None
) -> Predictor:
    """Like `load`, for what needs the model itself; refuses an exported file."""
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetch(source)

    from kmcl.models.folder import load_model
    from kmcl.serving.predictor import Predictor

    classifier, description = load_model(model_folder_of(folder), encoder=encoder)
    if guarantee is not None:
        description = replace(description, rules=_rules_with(description.rules, guarantee, folder))
    return Predictor(classifier, description, folder)


def load_for_people(
    source: str | PathLike[str], guarantee: str | None, abstain: float | None, console: Console
) -> tuple[ImagePredictor, float | None]:
    """The model, saying what its thresholds promise, and the cut-off of decisions that are left to a person.

    abstain: the share of those decisions; without it there is no cut-off
    """
    predictor = load(source, guarantee=guarantee)
    if predictor.rules.guarantee is not None:
        say(console, f"kmcl: {predictor.rules.guarantee.in_words(predictor.labels)}")
    if abstain is None:
        return predictor, None
    return predictor, cutoff_of_run(predictor.rules, abstain, Path(source))


def _rules_with(rules: LabelRules, guarantee: str, source: Path) -> LabelRules:
    return rules_for_wish(rules, GuaranteeWish.parse(guarantee), source)


def model_folder_of(folder: Path) -> Path:
    """The model folder inside a run, or the folder itself."""
    from kmcl.models.folder import DESCRIPTION_FILE

    if not (folder / DESCRIPTION_FILE).is_file() and (folder / "model").is_dir():
        return folder / "model"
    return folder


def _is_exported(path: Path) -> bool:
    return path.suffix.lower() == EXPORTED_SUFFIX and not path.is_dir()


def _fetch(source: str | PathLike[str]) -> Path:
    """The folder of a hub model; InputError where `source` is none."""
    path = Path(source)
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise InputError(
            f"{path}: pickled checkpoints are never loaded, since they can run code; for the weights "
            "released by the authors of KMCL or ASL use kmcl import-released"
        )
    if _is_exported(path):
        raise InputError(f"{path}: is an exported model; this needs the run or model folder it came from")
    if path.exists():
        raise InputError(f"{path}: is not a model folder")

    from kmcl.serving.hub import download, is_hub_id

    if not is_hub_id(fspath(source)):
        raise InputError(f"{path}: there is no such folder")
    return download(fspath(source))
