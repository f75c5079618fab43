"""Running the service on a socket until a signal stops it."""

from __future__ import annotations

import logging
import signal
import socket
from typing import TYPE_CHECKING

from kmcl.errors import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

    from kmcl.evaluation.drift import PredictedImages
    from kmcl.serving.image_predictor import ImagePredictor
    from kmcl.serving.service.settings import ServiceSettings
    from kmcl.serving.service.task_images import TaskImages

GRACE_SECONDS = 5


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

    from kmcl.serving.service.connections import limited_protocol

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

    from kmcl.serving.service.application import create_application

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
