"""pytorch-lightning, importable with a CPU build of torch: the package imports it from this module only."""

from kmcl.encoders.torchvision_operators import declare_missing_operators

declare_missing_operators()

from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO  # noqa: E402
from pytorch_lightning import Callback, LightningModule, Trainer  # noqa: E402
from pytorch_lightning.accelerators import AcceleratorRegistry  # noqa: E402
from pytorch_lightning.callbacks import Checkpoint, EarlyStopping  # noqa: E402
from pytorch_lightning.core.optimizer import LightningOptimizer  # noqa: E402
from pytorch_lightning.loggers import Logger, MLFlowLogger, TensorBoardLogger, WandbLogger  # noqa: E402
from pytorch_lightning.strategies import ModelParallelStrategy  # noqa: E402

__all__ = [
    "AcceleratorRegistry",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "LightningModule",
    "LightningOptimizer",
    "Logger",
    "MLFlowLogger",
    "ModelParallelStrategy",
    "TensorBoardLogger",
    "TorchCheckpointIO",
    "Trainer",
    "WandbLogger",
]
