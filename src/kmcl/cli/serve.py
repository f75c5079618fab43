"""`kmcl serve`: a model as an HTTP service, with a page to try it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption, say_guarantee
from kmcl.cli.label_studio_options import (
    LabelStudioFilesOption,
    LabelStudioOption,
    LabelStudioTokenOption,
    LabelStudioUrlOption,
    task_images,
)
from kmcl.serving.engine_choice import Engine

if TYPE_CHECKING:
    from kmcl.evaluation.drift import PredictedImages
    from kmcl.evaluation.label_rules import LabelRules

TIMEOUT = 30.0
LABEL_STUDIO_TIMEOUT = 90.0
"""Label Studio waits for 100 s, and sends all selected tasks in one request."""


def serve(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run or model folder, a hub model OWNER/NAME, or an .onnx file."
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all addresses.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    token: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            envvar="KMCL_TOKEN",
            help="Require this bearer token. Prefer the variable: other users can see flags.",
            show_default="none",
        ),
    ] = None,
    max_body: Annotated[float, typer.Option(help="Maximum size of a request in MiB.")] = 32,
    max_pixels: Annotated[float, typer.Option(help="Maximum size of an image in million pixels.")] = 50,
    max_images: Annotated[int, typer.Option(min=1, help="Maximum number of images per request.")] = 32,
    max_waiting: Annotated[int, typer.Option(min=1, help="Maximum number of images in the queue.")] = 256,
    max_requests: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent requests.")] = 64,
    max_requests_per_address: Annotated[
        int, typer.Option(min=1, help="Maximum number of concurrent requests of one client.")
    ] = 32,
    max_connections_per_address: Annotated[
        int, typer.Option(min=1, help="Maximum number of open connections of one address.")
    ] = 256,
    max_header: Annotated[float, typer.Option(help="Maximum size of the headers of a request in KiB.")] = 32,
    header_timeout: Annotated[
        float, typer.Option(help="Time limit for receiving the headers of a request in seconds.")
    ] = 10,
    min_body_rate: Annotated[
        float, typer.Option(help="Minimum rate at which a body must arrive, in KiB per second.")
    ] = 4,
    allowed_host: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="Answer requests for this host name too; may be repeated. On a loopback address only "
            "localhost is answered, on others any name unless this is given.",
            show_default="none",
        ),
    ] = None,
    trusted_proxy: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            metavar="ADDRESS",
            help="Count the requests that come from this address or network by the client that their "
            "X-Forwarded-For names, as is done for this machine's own address; may be repeated.",
            show_default="none",
        ),
    ] = None,
    batch_size: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Maximum number of images per batch.", show_default="by image size"),
    ] = None,
    timeout: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Time limit of a request in seconds.",
            show_default=f"{TIMEOUT:g}, with --label-studio {LABEL_STUDIO_TIMEOUT:g}",
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="What computes the model. auto: onnxruntime, if the extra export is installed."),
    ] = Engine.auto,
    guarantee: GuaranteeOption = None,
    abstain: AbstainOption = None,
    label_studio: LabelStudioOption = False,
    label_studio_url: LabelStudioUrlOption = None,
    label_studio_token: LabelStudioTokenOption = None,
    label_studio_files: LabelStudioFilesOption = None,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> None:
    """Serve a model over HTTP: POST /v1/predict, and a page to try it at /.

    Stops on Ctrl-C or SIGTERM after answering the accepted requests.
    """
    # First of all, so that a missing package is reported before the model is loaded.
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn  # noqa: F401

    from kmcl.serving import load
    from kmcl.serving.engine import with_engine
    from kmcl.serving.service.hosts import allowed_hosts
    from kmcl.serving.service.server import open_socket
    from kmcl.serving.service.server import serve as serve_until_stopped
    from kmcl.serving.service.settings import (
        KILOBYTE,
        LOCAL_PROXIES,
        MEGABYTE,
        MEGAPIXEL,
        ServiceSettings,
    )

    images = task_images(label_studio, label_studio_url, label_studio_token, label_studio_files)
    if timeout is None:
        timeout = LABEL_STUDIO_TIMEOUT if label_studio else TIMEOUT
    opened = open_socket(host, port)
    settings = ServiceSettings(
        max_body_bytes=round(max_body * MEGABYTE),
        max_image_pixels=round(max_pixels * MEGAPIXEL),
        max_images=max_images,
        max_waiting=max_waiting,
        batch_size=batch_size,
        timeout_seconds=timeout,
        max_requests=max_requests,
        max_requests_per_address=max_requests_per_address,
        max_connections_per_address=max_connections_per_address,
        max_header_bytes=round(max_header * KILOBYTE),
        header_seconds=header_timeout,
        min_body_rate=round(min_body_rate * KILOBYTE),
        allowed_hosts=allowed_hosts(opened, host, tuple(allowed_host or ())),
        trusted_proxies=(*LOCAL_PROXIES, *(trusted_proxy or ())),
        token=token or None,
    )
    loaded, cutoff = load(run, guarantee=guarantee), None
    loaded.refuse_vectors("kmcl serve")
    if abstain is not None:
        from kmcl.runs.guarantee import cutoff_of_run

        cutoff = cutoff_of_run(loaded.rules, abstain, run)
    predictor = with_engine(loaded, engine, partial(typer.echo, err=True))
    say_guarantee(predictor.rules)
    name = run.resolve().name if run.exists() else str(run)
    shown_host = f"[{host}]" if ":" in host else host
    typer.echo(f"{run}: {len(predictor.labels)} labels; serving at http://{shown_host}:{port}/", err=True)
    serve_until_stopped(
        predictor,
        settings,
        opened,
        name=name,
        cutoff=cutoff,
        label_studio=images,
        val=_val_of(run, predictor.rules),
        access_log=access_log,
    )


def _val_of(run: Path, rules: LabelRules) -> PredictedImages | None:
    """What the model says of val, where it was loaded from a run folder that still has it."""
    if not run.is_dir():
        return None
    from kmcl.evaluation.drift import predicted_images
    from kmcl.evaluation.predictions import Predictions
    from kmcl.runs.folder import RunFolder

    file = RunFolder(run).predictions_file("val")
    if not file.is_file():
        return None
    val = Predictions.load(file)
    return predicted_images(val, rules) if val.labels == rules.labels else None
