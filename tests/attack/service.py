"""The service under load and abuse: right answers are compared, wrong requests refused without a 5xx."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from mutation import damaged
from PIL import Image
from tally import Tally, arguments
from tiny_model import make_predictor

NUM_CLIENTS = 8
NUM_ABUSERS = 4
HANG_SECONDS = 600
"""Much longer than any time that the service gives a client: its process may have to wait for others."""
MOST_GROWTH = 300
"""MiB of memory that the service may take more at the end than after its first answers."""
FLAGS = ("--timeout=600", "--engine=torch", "--header-timeout=5")
HEAD = (
    b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: multipart/form-data; boundary=x7x\r\nContent-Length: %d\r\n\r\n"
)


def request_of(*images: bytes) -> bytes:
    parts = [
        b'--x7x\r\nContent-Disposition: form-data; name="images"; filename="%d"\r\n\r\n%b\r\n' % pair
        for pair in enumerate(images)
    ]
    body = b"".join(parts) + b"--x7x--\r\n"
    return HEAD % len(body) + body


class Attack:
    """A service, its clients and its abusers."""

    def __init__(self, tally: Tally, seed: int) -> None:
        self.tally, self._seed = tally, seed
        self._ending = threading.Event()
        folder = tally.folder
        make_predictor().save_pretrained(folder / "model")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = folder / "service.txt"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kmcl", "serve", str(folder / "model"), f"--port={self.port}", *FLAGS],
                stderr=log,
                env=os.environ | {"KMCL_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
            )
        self._wait_until_ready()
        rng = np.random.default_rng(0)
        self.images = []
        for suffix in ("PNG", "JPEG", "WEBP", "TIFF") * 4:
            buffer = io.BytesIO()
            small = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
            small.resize((48, 40)).save(buffer, suffix)
            self.images.append(buffer.getvalue())
        self.answers = [self._labels(self._ask(request_of(image))[1]) for image in self.images]
        self._memory = self._resident()

    def run(self) -> None:
        work = [self._load] * NUM_CLIENTS + [self._abuse] * NUM_ABUSERS
        threads = [threading.Thread(target=one, args=(n,), daemon=True) for n, one in enumerate(work)]
        for thread in threads:
            thread.start()
        while self.tally.time_left > 0 and self._process.poll() is None:
            time.sleep(0.5)
        grown = (self._resident() - self._memory) / 2**20
        if grown > MOST_GROWTH:
            self.tally.fail(f"the memory of the service grew by {grown:.0f} MiB")
        self.tally.count("MiB of growth", max(0, round(grown)))
        self._ending.set()  # before the signal: a 503 is right from now on
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = -9
        if status:
            self.tally.fail(f"status {status} of the service after SIGTERM")
        if b"Traceback" in self._log.read_bytes():
            self.tally.fail(f"a traceback in {self._log}")
        self.tally.finish()

    def _load(self, number: int) -> None:
        """Sound requests, one after the other, with every answer compared."""
        rng = random.Random(self._seed * 100 + number)
        while not self._ending.is_set():
            chosen = [rng.randrange(len(self.images)) for _ in range(rng.choice((1, 1, 1, 3, 8)))]
            try:
                status, body = self._ask(request_of(*(self.images[index] for index in chosen)), number)
            except OSError as error:
                if not self._ending.is_set():
                    self.tally.fail(f"a sound request got no answer: {error!r}")
                return
            if status == 429:
                time.sleep(0.2)
            elif status == 200:
                expected = [label for index in chosen for label in self.answers[index]]
                if not np.allclose(self._labels(body), expected, atol=1e-5):
                    self.tally.fail(f"a wrong answer to images {chosen}")
            elif not self._ending.is_set():
                self.tally.fail(f"status {status} to a sound request: {body[:300]!r}")
            self.tally.count(f"answers {status}")
            time.sleep(rng.uniform(0, 0.02))

    def _abuse(self, number: int) -> None:
        rng = random.Random(self._seed * 100 + number)
        ways = (*[self._send_damaged] * 3, self._send_much, self._send_slowly)
        while not self._ending.is_set():
            way = rng.choice(ways)
            try:
                with self._connect(number) as client:
                    way(client, rng)
            except TimeoutError:
                if not self._ending.is_set():
                    self.tally.fail(f"{way.__name__}: neither an answer nor an end within {HANG_SECONDS} s")
            except OSError:
                self.tally.count("connections cut")
            self.tally.count("abuses")

    def _send_damaged(self, client: socket.socket, rng: random.Random) -> None:
        client.sendall(damaged(request_of(rng.choice(self.images)), rng))
        if rng.random() < 0.2:
            return  # gone before the answer
        client.shutdown(socket.SHUT_WR)
        self._check_refusal(client)

    def _send_much(self, client: socket.socket, rng: random.Random) -> None:
        """Headers without end, or a body that is larger than it says."""
        client.sendall(rng.choice((b"GET / HTTP/1.1\r\nX: ", HEAD % 10**9, HEAD % 5)))
        with contextlib.suppress(OSError):
            for _ in range(300):
                client.sendall(b"a" * 100_000)
        self._check_refusal(client)

    def _send_slowly(self, client: socket.socket, rng: random.Random) -> None:
        """A byte at a time, or nothing after the beginning."""
        content = request_of(rng.choice(self.images))
        at = rng.randrange(len(content))
        client.sendall(content[:at])
        with contextlib.suppress(OSError):
            for place in range(at, min(at + rng.choice((0, 30)), len(content))):
                client.sendall(content[place : place + 1])
                time.sleep(0.2)
        self._check_refusal(client)

    def _check_refusal(self, client: socket.socket) -> None:
        received = b""
        while b"\r\n" not in received:
            part = client.recv(65536)
            if not part:
                return
            received += part
        status = int(received.split()[1])
        self.tally.count(f"refusals {status}")
        if status >= 500 and not self._ending.is_set():
            self.tally.fail(f"status {status} to abuse: {received[:500]!r}")

    def _connect(self, number: int) -> socket.socket:
        """Everybody has an address of one's own."""
        address = f"127.0.1.{number + 1}" if sys.platform == "linux" else "127.0.0.1"
        return socket.create_connection(("127.0.0.1", self.port), HANG_SECONDS, (address, 0))

    def _ask(self, request: bytes, number: int = 99) -> tuple[int, bytes]:
        with self._connect(number) as client:
            client.sendall(request)
            response = http.client.HTTPResponse(client)
            response.begin()
            return response.status, response.read()

    @staticmethod
    def _labels(body: bytes) -> list[list[float]]:
        return [
            [label["score"], label["probability"], label["present"]]
            for image in json.loads(body)["images"]
            for label in image["labels"]
        ]

    def _resident(self) -> int:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) * 1024
        return 0

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + HANG_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.2)
        raise SystemExit(f"the service did not start; see {self._log}")


def main() -> None:
    seed, seconds, folder = arguments()
    Attack(Tally(seconds, folder), seed).run()


if __name__ == "__main__":
    main()
