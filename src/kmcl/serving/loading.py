"""One door to every form a trained model comes in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.serving.image_predictor import ImagePredictor
    from kmcl.serving.predictor import Predictor

PICKLE_SUFFIXES = {".pth", ".pt", ".ckpt", ".bin", ".pkl"}


def load(source: str | Path) -> Predictor:
    """Load a trained model: a run folder, a model folder, or `owner/name` of the model hub.

    A folder of that name comes before the hub.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetch(source)
    return _load_folder(folder)


def open_predictor(source: str | Path) -> ImagePredictor:
    """What `load` takes, or an exported .onnx file, which is opened without torch."""
    path = Path(source)
    if path.suffix.lower() == ".onnx":
        from kmcl.serving.onnx_predictor import OnnxPredictor

        return OnnxPredictor(path)
    return load(source)


def model_folder_of(folder: Path) -> Path:
    """The model folder inside a run, or the folder itself."""
    from kmcl.methods.model_folder import DESCRIPTION_FILE

    if not (folder / DESCRIPTION_FILE).is_file() and (folder / "model").is_dir():
        return folder / "model"
    return folder


def _load_folder(folder: Path) -> Predictor:
    from kmcl.methods.model_folder import load_model
    from kmcl.serving.predictor import Predictor

    return Predictor(*load_model(model_folder_of(folder)), folder)


def _fetch(source: str | Path) -> Path:
    """The folder of a model of the hub; or why `source` is no model."""
    path = Path(source)
    if path.suffix.lower() in PICKLE_SUFFIXES:
        raise InputError(
            f"{path}: a pickled checkpoint is never loaded, since it could run code; for weights that the "
            "authors of KMCL or ASL released there is kmcl import-released"
        )
    if path.suffix.lower() == ".onnx":
        raise InputError(f"{path}: is an exported model; kmcl.serving.open_predictor opens it")
    if path.exists():
        raise InputError(f"{path}: is no folder with a model")

    from kmcl.serving.hub import download, is_hub_id

    if not is_hub_id(str(source)):
        raise InputError(f"{path}: there is no such folder")
    return download(str(source))
