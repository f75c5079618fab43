"""Which names of itself the service answers.

A page of another site can make its own name resolve to 127.0.0.1 (DNS rebinding). The browser then lets it
read the responses of a local service, but still sends that name in the Host header.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from kmcl.serving.service.errors import ServiceError

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")

_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:\d*)?")


def allowed_hosts(opened: socket.socket, host: str, added: tuple[str, ...]) -> tuple[str, ...] | None:
    """The names to answer on a bound socket; None for any.

    host:  the address as the user gave it
    added: further names; on an address that others can reach, only with these is anything refused
    """
    is_local = ipaddress.ip_address(opened.getsockname()[0].partition("%")[0]).is_loopback
    if not is_local and not added:
        return None
    own = f"[{host}]" if ":" in host else host
    return tuple(dict.fromkeys(name.lower() for name in (*LOCAL_NAMES, own, *added)))


def check_host(header: str | None, allowed: tuple[str, ...] | None) -> None:
    """Raise ServiceError for a Host header that names something else; no browser leaves it out."""
    if allowed is None or header is None:
        return
    matched = _HOST.fullmatch(header.strip().lower())
    if matched is None or matched[1].removesuffix(".") not in allowed:
        raise ServiceError(
            421,
            "wrong_host",
            f"the service is not called {header!r}; the flag --allowed-host of kmcl serve adds a name",
        )
