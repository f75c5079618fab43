"""What `ablation.py` trains: the default, its parts left out, the paper's forms, and the rivals."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from kmcl.methods import find_method
from kmcl.options.methods import KMCL_PRESETS, MethodOptions


class Variant(NamedTuple):
    """A method with its options, and the learning rate if it has one of its own on a dataset."""

    method: str
    options: Mapping[str, Any] = MappingProxyType({})
    rates: Mapping[str, float] = MappingProxyType({})

    def resolved(self, labels: tuple[str, ...]) -> MethodOptions:
        return find_method(self.method).options(**self.options).resolved(pretrained=True, labels=labels)


def _preset(name: str, **changes: Any) -> dict[str, Any]:
    return KMCL_PRESETS[name].model_dump(exclude={"name"}, exclude_unset=True) | changes


RATE = 3e-3
_SLOW = {"coco18": 1e-3, "nih14": 1e-3}
"""Rates that differ from `RATE`: those that val chose for the methods (docs/results.md)."""
_NARROW = {"decoder_width": 256}
_NO_KERNELS = {"reconstruction_weight": 0.0, "contrastive_weight": 0.0}
VARIANTS = {
    "asl": Variant("asl"),
    "kmcl": Variant("kmcl"),
    "kernels": Variant("kmcl", _preset("kernels")),
    "no contrast": Variant("kmcl", _preset("kernels", contrastive_weight=0.0)),
    "no reconstruction": Variant("kmcl", _preset("kernels", reconstruction_weight=0.0)),
    "neither": Variant("kmcl", _preset("kernels", **_NO_KERNELS)),
    "kernels, no queries": Variant("kmcl", _preset("kernels", query_width=0)),
    "bce": Variant("bce"),
    "focal": Variant("focal"),
    "aam": Variant("aam"),
    "csra": Variant("csra"),
    "mlgcn": Variant("mlgcn"),
    "addgcn": Variant("addgcn"),
    "tdrg": Variant("tdrg", _NARROW, {"nih14": 1e-3}),
    "mulsupcon": Variant("mulsupcon", rates={"coco18": 1e-3}),
    "q2l": Variant("q2l", _NARROW, _SLOW),
    "mldecoder": Variant("mldecoder", _NARROW, _SLOW),
    "paper, its rate": Variant("kmcl", _preset("paper"), dict.fromkeys(_SLOW, 2e-4)),
    "paper": Variant("kmcl", _preset("paper")),
    "paper, small initial values": Variant("kmcl", _preset("paper", head_init="small")),
    "paper, normalised": Variant("kmcl", _preset("paper", head_init="small", normalise_dimension=True)),
    "released, its rate": Variant("kmcl", _preset("released"), dict.fromkeys(_SLOW, 2e-4)),
    "released": Variant("kmcl", _preset("released")),
}
