"""What to install where a command needs a package of one of the extras that is not there."""

from __future__ import annotations

EXTRA_OF_PACKAGE = {
    "torch": "train",
    "torchvision": "train",
    "timm": "train",
    "pytorch_lightning": "train",
    "torchmetrics": "train",
    "pandas": "train",
    "sklearn": "train",
    "matplotlib": "train",
    "safetensors": "train",
    "huggingface_hub": "train",
    "tensorboard": "train",
    "captum": "reports",
    "onnxruntime": "onnx",
    "onnx": "export",
    "onnxscript": "export",
    "optuna": "studies",
    "fastapi": "serve",
    "uvicorn": "serve",
    "httptools": "serve",
    "uvloop": "serve",
    "python_multipart": "serve",
    "prometheus_client": "serve",
}
"""Extra of each importable name; a test holds it against pyproject.toml."""


def explain_missing_package(error: ModuleNotFoundError) -> str | None:
    """One line that says what to install; None where the module is of no extra, which is a fault of ours."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_PACKAGE.get(package)
    return None if extra is None else f"this needs {package}: pip install 'kmcl[{extra}]'"
