"""The service on a socket, until a signal ends it."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.serving.image_predictor import ImagePredictor
    from kmcl.serving.service.settings import ServiceSettings

GRACE_SECONDS = 5


def open_socket(host: str, port: int) -> socket.socket:
    """A socket at an address of this machine; connections to it wait until the service listens."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise InputError(f"{host}:{port} cannot be listened on: {error.strerror or error}") from None
    return opened


def serve(
    predictor: ImagePredictor,
    settings: ServiceSettings,
    opened: socket.socket,
    *,
    name: str,
    access_log: bool = False,
) -> None:
    """Answer until SIGINT or SIGTERM; then accept nothing more, finish what was accepted, and return."""
    import uvicorn

    from kmcl.serving.service.application import create_application

    config = uvicorn.Config(
        create_application(predictor, settings, name),
        access_log=access_log,
        log_level="info" if access_log else "warning",
        server_header=False,
        timeout_graceful_shutdown=round(settings.timeout_seconds) + GRACE_SECONDS,
        timeout_keep_alive=30,
    )
    # uvicorn repeats the signal once it is done, for whoever handled it before; by default that would end
    # the process as if killed, after a shutdown in good order.
    before = {sign: signal.signal(sign, _ignore) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        uvicorn.Server(config).run(sockets=[opened])
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
        opened.close()


def _ignore(number: int, frame: object) -> None:
    """The server has handled it."""
