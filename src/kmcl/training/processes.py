"""A training over several processes or machines, one of which is no longer there."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch.distributed

from kmcl.errors import LostProcessError
from kmcl.runs.folder import RunFolder
from kmcl.training.lightning import Callback, LightningModule, Trainer

LOST = re.compile(r"closed by peer|reset by peer|broken pipe|timed? ?out|no route to host", re.IGNORECASE)


OnLost = Callable[[LostProcessError], None]
"""Ends the process; called in a thread, while the main thread may wait for the lost process."""


def print_and_leave(folder: RunFolder, error: LostProcessError) -> None:
    """End this process, which waits for the lost one; ending gloo's threads in order would wait too."""
    sys.stderr.write("\n".join([f"kmcl: {error}", *folder.how_to_continue(), ""]))
    sys.stderr.flush()
    os._exit(1)


class WatchProcesses(Callback):
    """Watches the other processes of a training while it lasts."""

    def __init__(self, on_lost: OnLost) -> None:
        self._watch = ProcessWatch(lambda reason: on_lost(LostProcessError(reason)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            self._watch.start()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watch.close(failed=False)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._watch.close(failed=True)


@contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Raise LostProcessError where an exchange fails because of another process. Also a decorator."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).strip()
        if not torch.distributed.is_initialized() or not LOST.search(message):
            raise
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in message.lower():
            raise
        reason = re.sub(r"^\[.*?\]\s*", "", message.partition("\n")[0]).rstrip(".")
        raise LostProcessError(reason) from error


IDLE_SECONDS, INTERVAL_SECONDS, PROBES = 10, 5, 4
"""A connection is lost after IDLE_SECONDS + PROBES * INTERVAL_SECONDS without an answer."""

GRACE_SECONDS = 5.0
"""In which an exchange that fails as well may end the training, before the watch does."""

CONNECT_SECONDS = 60.0
FAREWELL, ALARM = b".", b"!"
TOKEN_BYTES = 32


class ProcessWatch:
    """Watches the other processes from `start` to `close`.

    on_lost: called in a thread of its own with what was noticed; it must end the process, whose main thread
             may wait for the lost one.
    """

    def __init__(self, on_lost: Callable[[str], None]) -> None:
        self._on_lost = on_lost
        self._closed = threading.Event()
        self._peers: dict[socket.socket, str] = {}
        self._selector = selectors.DefaultSelector()
        self._server: socket.socket | None = None
        self._token = ""

    def start(self) -> None:
        """Connect to the first process. Every process must call it, after the process group is there.

        Where no connection can be made (a firewall), exchanges alone notice what is lost.
        """
        is_first = torch.distributed.get_rank() == 0
        if is_first:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            self._server = socket.create_server(("", 0), family=family, dualstack_ipv6=both)
            self._selector.register(self._server, selectors.EVENT_READ)
        port = self._server.getsockname()[1] if self._server else 0
        place: list[Any] = [port, secrets.token_hex(TOKEN_BYTES // 2)]
        torch.distributed.broadcast_object_list(place, src=0)
        port, self._token = place
        if not is_first:
            with suppress(OSError):
                address = os.environ.get("MASTER_ADDR", "127.0.0.1")
                connection = socket.create_connection((address, port), CONNECT_SECONDS)
                connection.sendall(self._token.encode())
                self._add(connection, address)
        threading.Thread(target=self._watch, name="process watch", daemon=True).start()

    def close(self, *, failed: bool) -> None:
        """Stop watching. The others expect this process to end from now on, unless it has failed."""
        self._closed.set()
        for connection in () if failed else list(self._peers):
            with suppress(OSError):
                connection.sendall(FAREWELL)

    def _add(self, connection: socket.socket, address: str) -> None:
        connection.settimeout(None)
        _keep_alive(connection)
        self._peers[connection] = address
        self._selector.register(connection, selectors.EVENT_READ)

    def _watch(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(timeout=1.0):
                ready = key.fileobj
                if ready is self._server:
                    self._accept()
                elif isinstance(ready, socket.socket) and (what := self._read(ready)) is not None:
                    self._alarm(what)
                    return

    def _accept(self) -> None:
        """A connection with the token is that of a process; others are none of ours."""
        if self._server is None:
            return
        with suppress(OSError):
            connection, address = self._server.accept()
            connection.settimeout(CONNECT_SECONDS / 10)
            sent = connection.recv(TOKEN_BYTES, socket.MSG_WAITALL)
            if secrets.compare_digest(sent, self._token.encode()):
                self._add(connection, str(address[0]))
            else:
                connection.close()

    def _read(self, connection: socket.socket) -> str | None:
        """What a connection says: None if its process has taken leave."""
        address = self._peers[connection]
        try:
            said = connection.recv(1024)
        except OSError as error:  # no answer to the system's questions, or a reset
            said, reason = b"", error.strerror or "no connection"
        else:
            reason = "its process ended"
        if said.startswith(FAREWELL):
            self._selector.unregister(connection)
            del self._peers[connection]
            return None
        if said.startswith(ALARM):
            return said[len(ALARM) :].decode(errors="replace")
        return f"{address}: {reason.lower()}"

    def _alarm(self, what: str) -> None:
        for connection in self._peers:
            with suppress(OSError):
                connection.send(ALARM + what.encode()[:200])
        if not self._closed.wait(GRACE_SECONDS):
            self._on_lost(what)


def _keep_alive(connection: socket.socket) -> None:
    """Systems name these options differently; where one is missing, the system's own time holds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    wanted = {
        "TCP_KEEPIDLE": IDLE_SECONDS,
        "TCP_KEEPALIVE": IDLE_SECONDS,  # macOS
        "TCP_KEEPINTVL": INTERVAL_SECONDS,
        "TCP_KEEPCNT": PROBES,
        "TCP_USER_TIMEOUT": 1000 * (IDLE_SECONDS + PROBES * INTERVAL_SECONDS),
    }
    for name, value in wanted.items():
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
