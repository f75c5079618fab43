"""Settings of whole runs that take a few seconds."""

from __future__ import annotations

TINY_CACHED = {
    "encoder": "test_resnet",
    "weights": "none",
    "image_size": 32,
    "augmentation": "light",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "epochs": 2,
    "workers": 0,
    "frozen_stages": 2,
    "cached_views": 2,
    "data_options": {"size": 120},
}
"""With frozen stages and cached views."""
