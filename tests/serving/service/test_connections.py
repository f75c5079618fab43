"""Clients that send too much, too slowly or from a foreign page, over real sockets.

The server is uvicorn with the service's own protocol and middleware; behind them is an application that reads
the body and answers with its length.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvicorn

from kmcl.errors import InputError
from kmcl.serving.service import limited_body
from kmcl.serving.service.errors import ServiceError
from kmcl.serving.service.hosts import allowed_hosts, check_host
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.middleware import ServiceMiddleware
from kmcl.serving.service.server import server_config
from kmcl.serving.service.settings import LOCAL_PROXIES, ServiceSettings

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"


async def length_of_body(scope, receive, send) -> None:
    num_bytes, more = 0, True
    try:
        while more:
            message = await receive()
            num_bytes += len(message.get("body", b""))
            more = message.get("more_body", False)
    except ServiceError as error:
        await error.response()(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"%9d" % num_bytes})


class Running:
    """A server in a thread."""

    def __init__(self, **settings: object) -> None:
        limits = ServiceSettings(**settings)
        application = ServiceMiddleware(length_of_body, limits, ServiceMetrics(lambda: 0), frozenset())
        self.opened = socket.socket()
        self.opened.bind(("127.0.0.1", 0))
        self.port = self.opened.getsockname()[1]
        config = server_config(application, limits)
        config.lifespan = "off"  # the application has none
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.opened]})
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def connect(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(address, 0))

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join()
        self.opened.close()


@pytest.fixture
def serving() -> Iterator[Callable[..., Running]]:
    running = []

    def start(**settings: object) -> Running:
        running.append(Running(**settings))
        return running[-1]

    yield start
    for one in running:
        one.stop()


def answer_of(client: socket.socket) -> tuple[int, str]:
    """Status, and the code of an error or the body; 0 if the connection was closed without an answer."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = client.recv(65536)
        if not part:
            return 0, ""
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(next(line for line in head.lower().split(b"\r\n") if b"content-length" in line).split()[1])
    while len(body) < length:
        body += client.recv(65536)
    status = int(head.split()[1])
    return status, json.loads(body)["error"]["code"] if status >= 400 else body.decode().strip()


def ask(running: Running, request: bytes, address: str = "127.0.0.1") -> tuple[int, str]:
    with running.connect(address) as client:
        client.sendall(request)
        return answer_of(client)


@pytest.mark.parametrize("shape", ["many", "one value", "one name", "target"])
def test_headers_are_bounded(serving, shape: str):
    running = serving(max_header_bytes=20_000)
    filler = {
        "many": b"".join(b"X-%d: %s\r\n" % (number, b"a" * 90) for number in range(1000)),
        "one value": b"X: " + b"a" * 100_000,
        "one name": b"a" * 100_000,
        "target": b"",
    }[shape]
    start = b"GET /" + b"a" * 100_000 if shape == "target" else GET
    assert ask(running, start + filler) == (431, "headers_too_large")
    # Complete, in one piece of little more than the limit.
    assert ask(running, GET + b"X: " + b"a" * 20_000 + b"\r\n\r\n") == (431, "headers_too_large")
    assert ask(running, GET + b"X: " + b"a" * 19_000 + b"\r\n\r\n") == (200, "0")


def test_endless_headers_are_not_kept(serving):
    """A client that goes on sending gets no more than a second of attention."""
    running = serving(max_header_bytes=20_000)
    with running.connect() as client:
        client.sendall(GET)
        begin, sent = time.monotonic(), 0
        with contextlib.suppress(OSError):  # the server has closed the connection
            while sent < 400_000_000:
                client.sendall(b"X: " + b"a" * 100_000 + b"\r\n")
                sent += 100_005
        assert sent < 400_000_000
        assert time.monotonic() - begin < 15


def test_the_limit_holds_for_every_request_of_a_connection(serving):
    running = serving(max_header_bytes=20_000)
    with running.connect() as client:
        for _ in range(5):  # together more than the limit
            client.sendall(GET + b"X: " + b"a" * 9_000 + b"\r\n\r\n")
            assert answer_of(client) == (200, "0")
        client.sendall(POST + b"Content-Length: 100000\r\n\r\n" + b"b" * 100_000)  # a body is no header
        assert answer_of(client) == (200, "100000")
        client.sendall(GET + b"X: " + b"a" * 50_000)
        assert answer_of(client) == (431, "headers_too_large")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET + b"X: a"], ids=["nothing", "line", "headers"])
def test_headers_that_never_end(serving, sent: bytes):
    running = serving(header_seconds=0.4)
    with running.connect() as client:
        client.sendall(sent)
        begin = time.monotonic()
        assert answer_of(client) == ((408, "timeout") if sent else (0, ""))
        assert 0.2 < time.monotonic() - begin < 10


def test_drops_of_headers_do_not_prolong_their_time(serving):
    running = serving(header_seconds=0.6)
    with running.connect() as client:
        client.sendall(GET)
        begin = time.monotonic()
        client.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - begin < 15:
            client.sendall(b"X: a\r\n")
            try:
                answer = client.recv(100)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("unanswered", [False, True], ids=["empty lines", "rest of a body"])
def test_a_connection_is_not_kept_open_by_what_asks_for_nothing(serving, unanswered: bool):
    running = serving(header_seconds=0.6, token="t", max_body_bytes=1000)
    declared = b"Content-Length: 999999\r\n" if unanswered else b"Authorization: Bearer t\r\n"
    with running.connect() as client:
        client.sendall((POST if unanswered else GET) + declared + b"\r\n")
        assert answer_of(client)[0] == (401 if unanswered else 200)
        begin = time.monotonic()
        client.settimeout(0.1)
        try:
            while time.monotonic() - begin < 15:
                client.sendall(b"\r\n")
                try:
                    if not client.recv(100):
                        break
                except TimeoutError:
                    continue
        except OSError:
            pass
        assert time.monotonic() - begin < 10


def test_a_request_may_take_longer_than_its_headers(serving):
    """The time for headers ends with them: a body within its rate and the next request are not cut."""
    running = serving(header_seconds=0.5)
    with running.connect() as client:
        for _ in range(2):
            client.sendall(POST + b"Content-Length: 3000\r\n\r\n")
            for _ in range(3):
                time.sleep(0.3)
                client.sendall(b"b" * 1000)
            assert answer_of(client) == (200, "3000")


def test_a_slow_body(serving, monkeypatch):
    monkeypatch.setattr(limited_body, "GRACE_SECONDS", 0.5)
    running = serving(min_body_rate=20_000, max_body_bytes=10**6)
    with running.connect() as client:
        client.sendall(POST + b"Content-Length: 500000\r\n\r\n")
        begin = time.monotonic()
        client.settimeout(0.1)
        answer = b""
        while not answer and time.monotonic() - begin < 15:
            client.sendall(b"b" * 100)  # far below the rate, yet never silent
            try:
                answer = client.recv(4096)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"less than 20,000 bytes per second" in answer
        assert time.monotonic() - begin < 10
    assert ask(running, POST + b"Content-Length: 400000\r\n\r\n" + b"b" * 400_000) == (200, "400000")


def test_slow_clients_of_one_address_do_not_lock_others_out(serving):
    running = serving(max_requests=8, max_requests_per_address=4)
    slow = [running.connect() for _ in range(8)]
    try:
        for client in slow:
            client.sendall(POST + b"Content-Length: 10\r\n\r\nb")
        answers = [answer_of(client) for client in slow[4:]]
        assert answers == [(429, "too_many_requests")] * 4
        assert ask(running, POST + b"Content-Length: 1\r\n\r\nb") == (429, "too_many_requests")
        assert ask(running, POST + b"Content-Length: 1\r\n\r\nb", "127.0.0.2") == (200, "1")
        slow[0].sendall(b"b" * 9)
        assert answer_of(slow[0]) == (200, "10")
        assert ask(running, POST + b"Content-Length: 1\r\n\r\nb") == (200, "1")
    finally:
        for client in slow:
            client.close()


@pytest.mark.parametrize(
    ("proxy", "trusted", "counted_apart"),
    [
        ("127.0.0.1", (), True),
        ("127.0.0.2", (), False),
        ("127.0.0.2", ("127.0.0.2",), True),
        ("127.0.0.2", ("127.0.0.0/24",), True),
        ("127.0.1.2", ("127.0.0.0/24",), False),
    ],
)
def test_clients_of_a_trusted_proxy_have_a_share_each(
    serving, proxy: str, trusted: tuple[str, ...], counted_apart: bool
):
    running = serving(max_requests_per_address=1, trusted_proxies=(*LOCAL_PROXIES, *trusted))

    def request_for(client: str) -> bytes:
        return POST + b"X-Forwarded-For: " + client.encode() + b"\r\nContent-Length: 1\r\n\r\n"

    with running.connect(proxy) as slow:
        slow.sendall(request_for("192.0.2.1"))
        time.sleep(0.2)
        refused = (429, "too_many_requests")
        assert ask(running, request_for("192.0.2.1") + b"b", proxy) == refused
        expected = (200, "1") if counted_apart else refused
        assert ask(running, request_for("192.0.2.2") + b"b", proxy) == expected


def test_a_trusted_proxy_is_an_address():
    with pytest.raises(InputError, match=r"an IP address or a network such as .*; got 'proxy\.local'"):
        ServiceSettings(trusted_proxies=("proxy.local",))


def test_connections_of_one_address(serving):
    running = serving(max_connections_per_address=5)
    opened = [running.connect() for _ in range(5)]
    time.sleep(0.2)
    assert ask(running, GET + b"\r\n") == (429, "too_many_connections")
    assert ask(running, GET + b"\r\n", "127.0.0.2") == (200, "0")
    for client in opened[:2]:
        client.close()
    time.sleep(1.5)  # the refused connection too is closed after a second
    assert ask(running, GET + b"\r\n") == (200, "0")
    for client in opened[2:]:
        client.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("localhost.:1", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("localhost@evil.example", 421),
        ("127.0.0.1:80:80", 421),
        ("", 421),
    ],
)
def test_hosts_of_a_loopback_address(serving, host: str, status: int):
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        running = serving(allowed_hosts=allowed_hosts(opened, "127.0.0.1", ()))
    answer = ask(running, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer == ((200, "0") if status == 200 else (421, "wrong_host"))


def test_further_hosts():
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        check_host("Labels.Example:443", allowed_hosts(opened, "localhost", ("labels.example",)))
    with socket.socket() as opened:
        opened.bind(("0.0.0.0", 0))
        assert allowed_hosts(opened, "0.0.0.0", ()) is None
        only = allowed_hosts(opened, "0.0.0.0", ("labels.example",))
    check_host("labels.example", only)
    check_host(None, only)  # HTTP/1.0, which no browser speaks
    with pytest.raises(ServiceError, match=r"not called 'other\.example'"):
        check_host("other.example", only)


def test_limits_are_above_zero():
    for name in ("max_header_bytes", "header_seconds", "min_body_rate", "max_requests_per_address"):
        with pytest.raises(InputError, match=f"{name} must be above 0; got 0"):
            ServiceSettings(**{name: 0})
