"""Encoders: images in, one pooled feature and one feature per position out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.encoders.interface import Encoder, EncoderFeatures, StageTaps
    from kmcl.encoders.meta_run import dry_run
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

_HOMES = {
    "ENCODERS": "kmcl.encoders.registry",
    "Encoder": "kmcl.encoders.interface",
    "EncoderFactory": "kmcl.encoders.registry",
    "EncoderFeatures": "kmcl.encoders.interface",
    "ModuleEncoder": "kmcl.encoders.module_encoder",
    "StageTaps": "kmcl.encoders.interface",
    "TimmEncoder": "kmcl.encoders.timm_encoder",
    "default_weights": "kmcl.encoders.weights",
    "dry_run": "kmcl.encoders.meta_run",
    "open_encoder": "kmcl.encoders.opening",
}

__getattr__ = lazy_names(__name__, _HOMES)
