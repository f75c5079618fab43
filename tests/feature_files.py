"""Feature vectors that decide their labels, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

LABELS = ("red", "green", "blue")
WIDTH = 6


def vectors_and_targets(count: int, seed: int = 0) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    """The first three of six numbers say which labels are present; their scales differ a thousandfold."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, WIDTH))
    noisy = vectors[:, : len(LABELS)] + 0.3 * rng.standard_normal((count, len(LABELS)))
    targets = (noisy > 0.4).astype(np.int8)
    return (vectors * np.logspace(-1.5, 1.5, WIDTH) + 2).astype(np.float32), targets


def write_archive(path: Path, count: int = 120, **changes: Any) -> Path:
    """An .npz file; a change to None leaves an array out."""
    vectors, targets = vectors_and_targets(count)
    arrays: dict[str, Any] = {
        "features": vectors,
        "targets": targets,
        "labels": np.array(LABELS),
        "ids": np.array([f"row-{number}" for number in range(count)]),
    }
    chosen = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **chosen)
    return path
