"""The options of `kmcl serve` for Label Studio."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.serving.service.task_images import TaskImages

DEFAULT_URL = "http://localhost:8080"

LabelStudioOption = Annotated[
    bool, typer.Option("--label-studio", help="Be a machine learning backend of Label Studio too.")
]
LabelStudioUrlOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        envvar="LABEL_STUDIO_URL",
        metavar="URL",
        help="The Label Studio that images of tasks are asked for; no other server is.",
        show_default=f"{DEFAULT_URL}, or none with --label-studio-files",
    ),
]
LabelStudioTokenOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        envvar="LABEL_STUDIO_API_KEY",
        help="Access token of a user of Label Studio. Prefer the variable: other users can see flags.",
        show_default="none",
    ),
]
LabelStudioFilesOption = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        metavar="DIR",
        help="Look for images of tasks here first: Label Studio's document root of local files, or its "
        "media folder.",
        show_default="none",
    ),
]


def task_images(enabled: bool, url: str | None, token: str | None, files: Path | None) -> TaskImages | None:
    """Where the images of tasks are; None where Label Studio is not to be spoken with.

    The address and the token may be set in the environment for other programs; the folder cannot.
    """
    if not enabled:
        if files is not None:
            raise InputError("--label-studio-files needs --label-studio")
        return None
    from kmcl.serving.service.label_studio_host import LabelStudioHost
    from kmcl.serving.service.task_images import TaskImages

    if url is None and files is None:
        url = DEFAULT_URL
    return TaskImages(None if url is None else LabelStudioHost(url, token or None), files)
