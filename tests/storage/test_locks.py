"""Locks between processes: exclusive, waited for, and gone with the process that held them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kmcl.storage.locks import file_lock, is_locked, locked, read_owner, try_lock, write_owner

HOLDER = """
import sys, time
from pathlib import Path
from kmcl.storage.locks import try_lock, write_owner
lock = try_lock(Path(sys.argv[1]))
assert lock is not None
write_owner(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "x.lock"


@pytest.fixture
def holder(path: Path):
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_of_another_process_is_seen_and_waited_for(path: Path, holder: subprocess.Popen[str]):
    assert is_locked(path)
    assert try_lock(path) is None
    assert read_owner(path) == holder.pid
    waited = []

    def let_go() -> None:
        waited.append(time.monotonic())
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()

    with locked(path, on_wait=let_go):
        assert holder.wait(timeout=30) == 0
        assert is_locked(path)
    assert len(waited) == 1
    assert not is_locked(path)


def test_a_lock_is_released_by_kill_minus_nine(path: Path, holder: subprocess.Popen[str]):
    holder.kill()
    holder.wait()
    assert not is_locked(path)
    with locked(path, on_wait=lambda: pytest.fail("nothing to wait for")):
        assert is_locked(path)


def test_an_exception_releases_the_lock(path: Path):
    with pytest.raises(RuntimeError), locked(path):
        raise RuntimeError
    assert not is_locked(path)


COUNTER = """
import sys
from pathlib import Path
from kmcl.storage.locks import locked
number = Path(sys.argv[1])
for _ in range(100):
    with locked(number.with_suffix(".lock")):
        number.write_text(str(int(number.read_text()) + 1))
"""


def test_two_processes_never_hold_it_at_once(tmp_path: Path):
    number = tmp_path / "number"
    number.write_text("0")
    processes = [subprocess.Popen([sys.executable, "-c", COUNTER, str(number)]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    assert number.read_text() == "200"


def test_a_lock_object_can_be_acquired_and_released_again(path: Path):
    lock = file_lock(path)
    for _ in range(2):
        lock.acquire()
        assert is_locked(path)
        lock.release()
        assert not is_locked(path)


def test_the_owner_is_unknown_before_anyone_wrote_it(path: Path):
    assert read_owner(path) is None
    write_owner(path)
    assert read_owner(path) is not None
    path.with_suffix(".owner").write_text("nobody")
    assert read_owner(path) is None
