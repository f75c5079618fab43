"""`kmcl push`: publish a trained model with its card on the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated

import typer

from kmcl import api


def push(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or model folder.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model's name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Visible to its owners only.")] = False,
    message: Annotated[str | None, typer.Option(help="Message of the commit.")] = None,
) -> None:
    """Publish a model: weights, description and a card with its data, metrics and limits.

    Afterwards OWNER/NAME can be used wherever a run or model folder can. Needs a token of the hub (hf auth
    login).
    """
    typer.echo(api.push(run, repository, private=private, message=message))
