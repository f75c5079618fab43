"""The options `--guarantee` and `--abstain` of the commands that use a finished run."""

from __future__ import annotations

from typing import Annotated

import typer

GuaranteeOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATE=LEVEL",
        help="Thresholds, chosen on val of the run, that keep a rate on new images: recall=0.9, "
        "precision=0.8 or found=0.9 (the share of an image's labels); ,confidence=0.95 after it.",
        show_default="the model's own, if any",
    ),
]

AbstainOption = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Leave this share of the decisions, the least certain ones, to a person: 0.1 for a tenth. The "
        "cut-off is chosen on val of the run.",
        show_default="none",
    ),
]
