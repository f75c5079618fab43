"""`~` in paths that users give."""

from __future__ import annotations

import os
from pathlib import Path


def expand_home(path: str | Path) -> Path:
    """`~/x` and `~user/x` as a path; with an unknown user it stays as it is, and does not exist.

    `Path.expanduser` raises a RuntimeError there.
    """
    return Path(os.path.expanduser(path))
