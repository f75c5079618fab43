"""Hosts as network namespaces of one machine: own interfaces and addresses, joined by a bridge."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

INTERFACE = "eth0"


def missing_rights() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    if shutil.which("ip") is None:
        return "hosts need the program ip (iproute2)"
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    name = f"kmcl-{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "this machine allows no network namespaces"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Network:
    """`count` hosts at 10.77.0.1, 10.77.0.2, ...; the namespaces are removed at the end."""

    def __init__(self, count: int) -> None:
        token = secrets.token_hex(2)
        self._switch = f"kmcl-{token}-switch"
        self._hosts = [f"kmcl-{token}-{number}" for number in range(count)]
        self._ends = [f"k{token}{number}" for number in range(count)]

    def __enter__(self) -> Self:
        self._ip("netns", "add", self._switch)
        self._ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        self._ip("-n", self._switch, "link", "set", "bridge", "up")
        for number, (host, end) in enumerate(zip(self._hosts, self._ends, strict=True)):
            self._ip("netns", "add", host)
            self._ip(
                "link",
                "add",
                end,
                "netns",
                self._switch,
                "type",
                "veth",
                "peer",
                "name",
                INTERFACE,
                "netns",
                host,
            )
            self._ip("-n", self._switch, "link", "set", end, "master", "bridge", "up")
            self._ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", INTERFACE)
            self._ip("-n", host, "link", "set", INTERFACE, "up")
            self._ip("-n", host, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in (*self._hosts, self._switch):
            self._kill_all(name)
            self._ip("netns", "del", name)

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{number + 1}"

    def start(self, number: int, command: list[str], log: IO[str]) -> subprocess.Popen[str]:
        """Run a command on a host, in a session of its own."""
        # All hosts have the name of this machine, which gloo would resolve to one address.
        environment = os.environ | {"GLOO_SOCKET_IFNAME": INTERFACE, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(
            ["ip", "netns", "exec", self._hosts[number], *command],
            stdout=log,
            stderr=log,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def kill(self, number: int) -> None:
        """Every process of a host, at once: its power fails, but its network still says so."""
        self._kill_all(self._hosts[number])

    def processes(self, number: int) -> list[int]:
        return [int(process) for process in self._ip("netns", "pids", self._hosts[number]).split()]

    def cut(self, number: int) -> None:
        """The cable of a host: nothing arrives, and nobody is told."""
        self._ip("-n", self._switch, "link", "set", self._ends[number], "down")

    def bytes_sent(self, number: int) -> int:
        """By a host since it was made, with the headers of its packets."""
        text = self._ip("-n", self._hosts[number], "-s", "-j", "link", "show", INTERFACE)
        return int(json.loads(text)[0]["stats64"]["tx"]["bytes"])

    def _kill_all(self, name: str) -> None:
        for process in self._ip("netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), 9)

    @staticmethod
    def _ip(*arguments: str) -> str:
        return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=True).stdout


def torchrun(number: int, count: int, *arguments: str) -> list[str]:
    """`kmcl` under torchrun on one of `count` hosts, with one process each."""
    places = ["--nnodes", str(count), "--nproc-per-node", "1", "--node-rank", str(number)]
    meeting = ["--master-addr", Network.address(0), "--master-port", "29500"]
    return [sys.executable, "-m", "torch.distributed.run", *places, *meeting, "-m", "--", "kmcl", *arguments]


def elastic_torchrun(number: int, count: int, *arguments: str) -> list[str]:
    """The same with restarts. Hosts share a name here, so each is told its address and who keeps the list."""
    places = ["--nnodes", str(count), "--nproc-per-node", "1", "--max-restarts", "3"]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{Network.address(0)}:29500", "--rdzv-id", "one"]
    own = ["--local-addr", Network.address(number), "--rdzv-conf", f"is_host={int(number == 0)}"]
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *places,
        *meeting,
        *own,
        "-m",
        "--",
        "kmcl",
        *arguments,
    ]


def log_of(folder: Path, number: int) -> Path:
    return folder / f"host-{number}.txt"
