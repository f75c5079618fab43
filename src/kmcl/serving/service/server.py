"""Running the service on a socket until a signal stops it."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmcl.errors import InputError
from kmcl.evaluation.drift import PredictedImages, predicted_images
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.progress import error_console, say
from kmcl.runs.folder import RunFolder
from kmcl.serving.engine import with_engine
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.loading import load_for_people
from kmcl.serving.service.application import create_application
from kmcl.serving.service.connections import limited_protocol
from kmcl.serving.service.hosts import allowed_hosts as answered_hosts
from kmcl.serving.service.settings import LABEL_STUDIO_SECONDS, LOCAL_PROXIES, ServiceSettings
from kmcl.serving.service.task_images import TaskImages

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

GRACE_SECONDS = 5


def serve(
    run: str | PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    engine: str = "auto",
    guarantee: str | None = None,
    abstain: float | None = None,
    allowed_hosts: Sequence[str] = (),
    trusted_proxies: Sequence[str] = (),
    timeout: float | None = None,
    label_studio: bool = False,
    label_studio_url: str | None = None,
    label_studio_token: str | None = None,
    label_studio_files: str | PathLike[str] | None = None,
    access_log: bool = False,
    progress: bool = True,
    **limits: Any,
) -> None:
    """Serve a model over HTTP until SIGINT or SIGTERM.

    run:     a run or model folder, a hub model or an .onnx file
    allowed_hosts, trusted_proxies: besides this machine's own
    timeout: of a request in seconds; 30 if not given, 90 with label_studio
    label_studio: be a backend of Label Studio too, whose images are on the server `label_studio_url`, asked
             with `label_studio_token`, or in the folder `label_studio_files`
    limits:  any other of `kmcl.serving.service.settings.ServiceSettings`, as in max_images=8
    """
    if label_studio_files is not None and not label_studio:
        raise InputError("--label-studio-files needs --label-studio")
    folder = None if label_studio_files is None else Path(label_studio_files)
    tasks = TaskImages.at(label_studio_url, label_studio_token, folder) if label_studio else None
    if timeout is None:
        timeout = LABEL_STUDIO_SECONDS if label_studio else ServiceSettings.timeout_seconds
    console, model = error_console(progress), Path(run)
    opened = open_socket(host, port)
    settings = ServiceSettings(
        allowed_hosts=answered_hosts(opened, host, tuple(allowed_hosts)),
        trusted_proxies=(*LOCAL_PROXIES, *trusted_proxies),
        timeout_seconds=timeout,
        **limits,
    )
    loaded, cutoff = load_for_people(model, guarantee, abstain, console)
    loaded.refuse_vectors("kmcl serve")
    predictor = with_engine(loaded, Engine(engine), partial(say, console))
    shown_host = f"[{host}]" if ":" in host else host
    say(console, f"{model}: {len(predictor.labels)} labels; serving at http://{shown_host}:{port}/")
    serve_until_stopped(
        predictor,
        settings,
        opened,
        name=model.resolve().name if model.exists() else str(model),
        cutoff=cutoff,
        label_studio=tasks,
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


def serve_until_stopped(
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
