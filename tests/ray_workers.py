"""The processes of a local Ray."""

from __future__ import annotations

from pathlib import Path


def processes_of(computed: str) -> list[int]:
    """Ray names its processes after what they compute."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes()
        except OSError:  # it has ended
            continue
        if title.startswith(b"ray::") and computed.encode() in title:
            found.append(int(path.parent.name))
    return found
