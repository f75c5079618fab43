"""The watch over the processes of a training: one that is killed, one that fails, one that takes leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from forked_processes import CONTEXT
from watched_processes import watch_in_process


@pytest.mark.parametrize("ends", ["kill", "fail", "leave"])
def test_all_others_notice_a_lost_process(tmp_path: Path, ends: str):
    """Of three, the last has no connection to the lost one: the first tells it."""
    said = CONTEXT.Queue()
    processes = [
        CONTEXT.Process(target=watch_in_process, args=(rank, 3, str(tmp_path), ends, said))
        for rank in range(3)
    ]
    for process in processes:
        process.start()
    heard = sorted(said.get(timeout=120) for _ in range(2))
    for process in processes:
        process.join(60)
    expected = [] if ends == "leave" else ["127.0.0.1: its process ended"]
    assert [[_plain(text) for text in noticed] for _, noticed in heard] == [expected, expected]


def _plain(text: str) -> str:
    return text.removeprefix("::ffff:").replace("connection reset by peer", "its process ended")
