"""Settings of trainings that take a second."""

from __future__ import annotations

TINY = {
    "encoder": "test_convnext",
    "weights": "none",
    "query_width": 128,
    "image_size": 32,
    "augmentation": "light",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "epochs": 1,
    "workers": 0,
    "data_options": {"size": "120"},
}
