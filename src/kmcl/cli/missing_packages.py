"""What to install if a command needs a missing package of one of the extras."""

from __future__ import annotations

EXTRA_OF_PACKAGE = {
    "torch": "train",
    "torchvision": "train",
    "timm": "train",
    "pytorch_lightning": "train",
    "pandas": "train",
    "pyarrow": "train",
    "scipy": "train",
    "sklearn": "train",
    "matplotlib": "train",
    "safetensors": "train",
    "huggingface_hub": "train",
    "tensorboard": "train",
    "filelock": "train",
    "pydicom": "formats",
    "pillow_heif": "formats",
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
"""Extra of each importable name; a test compares it with pyproject.toml."""


def explain_missing_package(error: ModuleNotFoundError) -> str | None:
    """One line that says what to install; None if the module belongs to no extra, which is a bug."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRA_OF_PACKAGE.get(package)
    return None if extra is None else f"this needs {package}: pip install 'kmcl[{extra}]'"
