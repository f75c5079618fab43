"""Encoders: images in, one pooled feature and one feature per position out."""

# ruff: noqa: E402
from kmcl.encoders.torchvision_operators import declare_missing_operators

declare_missing_operators()  # before timm is imported, which imports torchvision

from kmcl.encoders.interface import Encoder, EncoderFeatures, StageTaps, dry_run
from kmcl.encoders.module_encoder import ModuleEncoder
from kmcl.encoders.opening import open_encoder
from kmcl.encoders.registry import ENCODERS, EncoderFactory
from kmcl.encoders.timm_encoder import TimmEncoder
from kmcl.encoders.weights import default_weights

__all__ = [
    "ENCODERS",
    "Encoder",
    "EncoderFactory",
    "EncoderFeatures",
    "ModuleEncoder",
    "StageTaps",
    "TimmEncoder",
    "default_weights",
    "dry_run",
    "open_encoder",
]
