"""Running the service on a socket until a signal stops it."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from kmcl.errors import InputError
from kmcl.evaluation.drift import PredictedImages, predicted_images
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.progress import say
from kmcl.runs.folder import RunFolder
from kmcl.serving.engine import with_engine
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.loading import load_for_people
from kmcl.serving.service.application import create_application
from kmcl.serving.service.connections import limited_protocol
from kmcl.serving.service.hosts import allowed_hosts
from kmcl.serving.service.settings import LOCAL_PROXIES, ServiceSettings
from kmcl.serving.service.task_images import TaskImages

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

GRACE_SECONDS = 5


def serve_model(
    model: Path,
    *,
    host: str,
    port: int,
    engine: Engine,
    guarantee: str | None,
    abstain: float | None,
    names: Sequence[str],
    proxies: Sequence[str],
    label_studio: TaskImages | None,
    access_log: bool,
    console: Console,
    **limits: Any,
) -> None:
    """Load a model and serve it until SIGINT or SIGTERM; the arguments are those of `kmcl.api.serve`.

    names, proxies: host names that are answered, and proxies that are trusted, besides this machine's own
    """
    opened = open_socket(host, port)
    settings = ServiceSettings(
        allowed_hosts=allowed_hosts(opened, host, tuple(names)),
        trusted_proxies=(*LOCAL_PROXIES, *proxies),
        **limits,
    )
    loaded, cutoff = load_for_people(model, guarantee, abstain, console)
    loaded.refuse_vectors("kmcl serve")
    predictor = with_engine(loaded, engine, partial(say, console))
    shown_host = f"[{host}]" if ":" in host else host
    say(console, f"{model}: {len(predictor.labels)} labels; serving at http://{shown_host}:{port}/")
    serve(
        predictor,
        settings,
        opened,
        name=model.resolve().name if model.exists() else str(model),
        cutoff=cutoff,
        label_studio=label_studio,
        val=_val_of(model, predictor.rules),
        access_log=access_log,
    )


def _val_of(model: Path, rules: LabelRules) -> PredictedImages | None:
    """What the model says of val, where it was loaded from a run folder that still has it."""
    if not model.is_dir() or not (file := RunFolder(model).predictions_file("val")).is_file():
        return None
    val = Predictions.load(file)
    return predicted_images(val, rules) if val.labels == rules.labels else None


def open_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address of this machine; it does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return opened


def server_config(
    application: ASGIApp, settings: ServiceSettings, *, access_log: bool = False
) -> uvicorn.Config:
    """uvicorn's settings for an application behind the service's limits."""
    import uvicorn

    return uvicorn.Config(
        application,
        access_log=access_log,
        log_level="info" if access_log else "warning",
        server_header=False,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=round(settings.timeout_seconds) + GRACE_SECONDS,
        timeout_keep_alive=30,
        http=limited_protocol(settings),
        ws="none",
    )


def serve(
    predictor: ImagePredictor,
    settings: ServiceSettings,
    opened: socket.socket,
    *,
    name: str,
    cutoff: float | None = None,
    label_studio: TaskImages | None = None,
    val: PredictedImages | None = None,
    access_log: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; then refuse new requests, finish the accepted ones, and return.

    cutoff: the probability of an error above which a decision is left to a person; None: none is
    label_studio: where the images of Label Studio's tasks are; None: its protocol is not spoken
    val:    what the model says of the images of val, for drift in the metrics; None: it is not known
    """
    import uvicorn

    # It warns about bodies without naming the request; the client gets the same as its response.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)

    application = create_application(predictor, settings, name, cutoff, label_studio, val)
    config = server_config(application, settings, access_log=access_log)
    # uvicorn raises the signal again after its shutdown, for the previous handler; the default handler would
    # end the process as if killed, after a clean shutdown.
    before = {sign: signal.signal(sign, _ignore) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[opened])
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        opened.close()


def _ignore(number: int, frame: object) -> None:
    """The server has handled it."""
