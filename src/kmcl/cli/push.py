"""`kmcl push`: a trained model, with its card, to the Hugging Face hub."""

from __future__ import annotations

from typing import Annotated, Optional

import typer


def push(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or a model folder.")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The model's name on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Visible to its owners alone.")] = False,
    message: Annotated[Optional[str], typer.Option(help="Of the commit.")] = None,  # noqa: UP045
) -> None:
    """Publish a model: weights, description and a card with its data, figures and limits.

    Afterwards OWNER/NAME stands for the model wherever a run does. Needs a token of the hub (hf auth login).
    """
    from kmcl.serving.hub import push as push_model
    from kmcl.serving.loading import load

    typer.echo(push_model(load(run), repository, private=private, message=message))
