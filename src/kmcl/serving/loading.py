"""Loading a trained model in any of its forms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kmcl.errors import InputError

if TYPE_CHECKING:
    from torch import nn

    from kmcl.serving.image_predictor import ImagePredictor
    from kmcl.serving.predictor import Predictor

PICKLE_SUFFIXES = {".pth", ".pt", ".ckpt", ".bin", ".pkl"}


def load(source: str | Path, encoder: nn.Module | None = None) -> ImagePredictor:
    """Load a trained model: a run folder, a model folder, `owner/name` on the model hub, or an .onnx file.

    A folder takes precedence over a hub model of the same name. An exported .onnx file is loaded without
    torch and gives an `OnnxPredictor`, everything else a `Predictor`.

    encoder: for a model whose encoder is the user's own class: an instance of it, which gets the weights
    """
    path = Path(source)
    if not _is_exported(path):
        return load_in_torch(source, encoder)
    if encoder is not None:
        raise InputError(f"{path}: an exported model contains its encoder; load it without `encoder`")
    from kmcl.serving.onnx_predictor import OnnxPredictor

    return OnnxPredictor(path)


def load_in_torch(source: str | Path, encoder: nn.Module | None = None) -> Predictor:
    """Like `load`, for what needs the model itself; refuses an exported file."""
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetch(source)

    from kmcl.models.folder import load_model
    from kmcl.serving.predictor import Predictor

    return Predictor(*load_model(model_folder_of(folder), encoder=encoder), folder)


def model_folder_of(folder: Path) -> Path:
    """The model folder inside a run, or the folder itself."""
    from kmcl.models.folder import DESCRIPTION_FILE

    if not (folder / DESCRIPTION_FILE).is_file() and (folder / "model").is_dir():
        return folder / "model"
    return folder


def _is_exported(path: Path) -> bool:
    return path.suffix.lower() == ".onnx" and not path.is_dir()


def _fetch(source: str | Path) -> Path:
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

    if not is_hub_id(str(source)):
        raise InputError(f"{path}: there is no such folder")
    return download(str(source))
