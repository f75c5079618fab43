"""`kmcl serve`: a model as an HTTP service, with a page to try it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption
from kmcl.serving.engine_choice import Engine
from kmcl.serving.service.settings import (
    KILOBYTE,
    LABEL_STUDIO_SECONDS,
    LABEL_STUDIO_URL,
    MEGABYTE,
    MEGAPIXEL,
    ServiceSettings,
)

USUAL = ServiceSettings()


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
        str | None,
        typer.Option(
            envvar="KMCL_TOKEN",
            help="Require this bearer token. Prefer the variable: other users can see flags.",
            show_default="none",
        ),
    ] = None,
    max_body: Annotated[float, typer.Option(help="Maximum size of a request in MiB.")] = (
        USUAL.max_body_bytes // MEGABYTE
    ),
    max_pixels: Annotated[float, typer.Option(help="Maximum size of an image in million pixels.")] = (
        USUAL.max_image_pixels // MEGAPIXEL
    ),
    max_images: Annotated[int, typer.Option(min=1, help="Maximum number of images per request.")] = (
        USUAL.max_images
    ),
    max_waiting: Annotated[int, typer.Option(min=1, help="Maximum number of images in the queue.")] = (
        USUAL.max_waiting
    ),
    max_requests: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent requests.")] = (
        USUAL.max_requests
    ),
    max_requests_per_address: Annotated[
        int, typer.Option(min=1, help="Maximum number of concurrent requests of one client.")
    ] = USUAL.max_requests_per_address,
    max_connections_per_address: Annotated[
        int, typer.Option(min=1, help="Maximum number of open connections of one address.")
    ] = USUAL.max_connections_per_address,
    max_header: Annotated[float, typer.Option(help="Maximum size of the headers of a request in KiB.")] = (
        USUAL.max_header_bytes // KILOBYTE
    ),
    header_timeout: Annotated[
        float, typer.Option(help="Time limit for receiving the headers of a request in seconds.")
    ] = round(USUAL.header_seconds),
    min_body_rate: Annotated[
        float, typer.Option(help="Minimum rate at which a body must arrive, in KiB per second.")
    ] = USUAL.min_body_rate // KILOBYTE,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="Answer requests for this host name too; may be repeated. On a loopback address only "
            "localhost is answered, on others any name unless this is given.",
            show_default="none",
        ),
    ] = None,
    trusted_proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS",
            help="Count the requests that come from this address or network by the client that their "
            "X-Forwarded-For names, as is done for this machine's own address; may be repeated.",
            show_default="none",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Maximum number of images per batch.", show_default="by image size"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Time limit of a request in seconds.",
            show_default=f"{USUAL.timeout_seconds:g}, with --label-studio {LABEL_STUDIO_SECONDS:g}",
        ),
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option(help="What computes the model. auto: onnxruntime, if the extra export is installed."),
    ] = Engine.auto,
    guarantee: GuaranteeOption = None,
    abstain: AbstainOption = None,
    label_studio: Annotated[
        bool, typer.Option("--label-studio", help="Be a machine learning backend of Label Studio too.")
    ] = False,
    label_studio_url: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_URL",
            metavar="URL",
            help="The Label Studio that images of tasks are asked for; no other server is.",
            show_default=f"{LABEL_STUDIO_URL}, or none with --label-studio-files",
        ),
    ] = None,
    label_studio_token: Annotated[
        str | None,
        typer.Option(
            envvar="LABEL_STUDIO_API_KEY",
            help="Access token of a user of Label Studio. Prefer the variable: other users can see flags.",
            show_default="none",
        ),
    ] = None,
    label_studio_files: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Look for images of tasks here first: Label Studio's document root of local files, or its "
            "media folder.",
            show_default="none",
        ),
    ] = None,
    access_log: Annotated[bool, typer.Option(help="Log every request.")] = False,
) -> None:
    """Serve a model over HTTP: POST /v1/predict, and a page to try it at /.

    Stops on Ctrl-C or SIGTERM after answering the accepted requests.
    """
    api.serve(
        run,
        host=host,
        port=port,
        engine=engine,
        guarantee=guarantee,
        abstain=abstain,
        allowed_hosts=allowed_hosts or (),
        trusted_proxies=trusted_proxies or (),
        timeout=timeout,
        label_studio=label_studio,
        label_studio_url=label_studio_url,
        label_studio_token=label_studio_token,
        label_studio_files=label_studio_files,
        access_log=access_log,
        token=token,
        batch_size=batch_size,
        max_images=max_images,
        max_waiting=max_waiting,
        max_requests=max_requests,
        max_requests_per_address=max_requests_per_address,
        max_connections_per_address=max_connections_per_address,
        max_body_bytes=round(max_body * MEGABYTE),
        max_image_pixels=round(max_pixels * MEGAPIXEL),
        max_header_bytes=round(max_header * KILOBYTE),
        header_seconds=header_timeout,
        min_body_rate=round(min_body_rate * KILOBYTE),
    )
