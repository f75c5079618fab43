"""`kmcl serve` as a process of its own: starts, answers, and ends in good order."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import make_image, make_predictor

BOUNDARY = "x7x"


def form(*contents: bytes) -> bytes:
    parts = [
        b'--x7x\r\nContent-Disposition: form-data; name="images"; filename="%d.png"\r\n\r\n%b\r\n' % pair
        for pair in enumerate(contents)
    ]
    return b"".join(parts) + b"--x7x--\r\n"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "bugs"
    make_predictor().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def served(model: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "kmcl", "serve", str(model), "--port", str(port), "--batch-size", "4"],
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "KMCL_TOKEN": "s3cret",
            "OMP_NUM_THREADS": "1",
            "KMCL_CACHE": str(model.parent / "cache"),
        },
    )
    try:
        wait_until_ready(process, port)
        yield process, port
    finally:
        process.kill()
        process.communicate()


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


def wait_until_refused(port: int, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.05)
    pytest.fail(f"new connections are accepted {seconds} s after the signal")


def post(port: int, body: bytes) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}", "Authorization": "Bearer s3cret"}
    connection.request("POST", "/v1/predict?saliency=true", body, headers)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def test_over_a_real_socket_a_body_too_large_gets_its_answer(served):
    _, port = served
    status, answer = post(port, form(bytes(33 * 2**20)))
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    status, answer = post(port, form(make_image(0)))
    assert status == 200


def test_sigterm_answers_what_was_accepted_and_ends_with_status_0(served):
    process, port = served
    # Eight images with saliency, four at a time, are still being worked on when the signal comes.
    body = form(*[make_image(seed) for seed in range(8)])
    answers: list[tuple[int, dict]] = []
    threads = [threading.Thread(target=lambda: answers.append(post(port, body))) for _ in range(6)]
    # One more is half sent: its head is in, the rest follows after the signal.
    half = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer s3cret\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    half.sendall(head.encode() + body[:1000])
    for thread in threads:
        thread.start()
    wait_for_requests(port, 7)
    process.send_signal(signal.SIGTERM)
    wait_until_refused(port)  # nobody new is let in
    half.sendall(body[1000:])
    received = b""
    while part := half.recv(1 << 16):
        received += part
    for thread in threads:
        thread.join()
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert [status for status, _ in answers] == [200] * 6
    assert all(len(answer["images"]) == 8 for _, answer in answers)
    assert process.wait(30) == 0
    assert "Traceback" not in process.stderr.read()


def wait_for_requests(port: int, count: int) -> None:
    """Until the service has accepted that many connections, and has read what had come by then.

    The system completes connections before a busy service accepts them; until then they have no inode.
    """
    end = time.monotonic() + 60
    local = f":{port:04X}"
    while time.monotonic() < end:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        if sum(row[1].endswith(local) and row[3] == "01" and row[9] != "0" for row in rows) >= count:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
            connection.close()
            return
        time.sleep(0.001)
    raise AssertionError("the requests did not come through")


def test_a_port_in_use_is_told_in_a_line_before_the_model_is_loaded():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "kmcl", "serve", "none", "--port", str(port)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr == f"kmcl: cannot listen on 127.0.0.1:{port}: Address already in use\n"
