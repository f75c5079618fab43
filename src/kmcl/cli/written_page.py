"""Commands that write a page: its path is printed, and it is opened on request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]


def show(page: Path, in_browser: bool) -> None:
    """Print the path of the page, and open it if requested."""
    typer.echo(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    if in_browser:
        typer.launch(page.resolve().as_uri())
