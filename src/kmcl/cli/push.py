"""`kmcl push`: publish a trained model with its card on the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated, Optional

import typer


def push(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run or model folder.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model's name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Visible to its owners only.")] = False,
    message: Annotated[Optional[str], typer.Option(help="Message of the commit.")] = None,  # noqa: UP045
) -> None:
    """Publish a model: weights, description and a card with its data, metrics and limits.

    Afterwards OWNER/NAME can be used wherever a run or model folder can. Needs a token of the hub (hf auth
    login).
    """
    from kmcl.serving.hub import push as push_model
    from kmcl.serving.loading import load_in_torch

    typer.echo(push_model(load_in_torch(run), repository, private=private, message=message))
