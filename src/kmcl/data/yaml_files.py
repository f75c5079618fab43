"""YAML files that describe data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kmcl.data.files import require_file
from kmcl.errors import InputError


def read_yaml(path: Path, what: str) -> Any:
    """The content of a file; `what` it is, for messages. Only a regular file is opened."""
    require_file(path, what)
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{what} {path} cannot be read as YAML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{what} {path} cannot be read as YAML: it is nested too deeply") from error
