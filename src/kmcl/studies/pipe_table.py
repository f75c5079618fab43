"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def pipe_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a line for the header, one of dashes, and one for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
