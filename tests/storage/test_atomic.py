"""Atomic writes: complete or not at all, whatever goes wrong, and no temporary file left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmcl.storage import atomic
from kmcl.storage.atomic import WriteError, replacing, write_bytes, write_json, write_text, write_with


def test_text_json_and_bytes_are_written_as_given_into_a_new_folder(tmp_path: Path):
    folder = tmp_path / "new" / "folder"
    write_text(folder / "a.txt", "å\r\nb\n")
    write_json(folder / "b.json", {"x": [1, 2.5]})
    write_bytes(folder / "c", b"\0\n")
    assert (folder / "a.txt").read_bytes() == "å\r\nb\n".encode()
    assert (folder / "b.json").read_text() == '{\n  "x": [\n    1,\n    2.5\n  ]\n}\n'
    assert (folder / "c").read_bytes() == b"\0\n"
    assert sorted(os.listdir(folder)) == ["a.txt", "b.json", "c"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(folder / "b.json", float("nan"))
    assert '"x"' in (folder / "b.json").read_text()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("durable", [False, True])
def test_an_exception_leaves_the_old_file_alone(tmp_path: Path, error: type[BaseException], durable: bool):
    path = tmp_path / "a.npz"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path, durable=durable) as temporary:
            assert temporary.suffix == ".npz"
            temporary.write_text("ne")
            raise error

    with pytest.raises(error):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.npz"]


@pytest.fixture
def small_files() -> Iterator[int]:
    """A real write error: this process cannot write files of more than so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    yield 10_000
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, previous)


def test_a_write_that_the_system_refuses_leaves_the_old_file_alone(tmp_path: Path, small_files: int):
    path = tmp_path / "a"
    write_bytes(path, b"o" * small_files)
    reason = r"a: cannot be written: File too large \(10,001 bytes needed, [\d,]+ bytes free\)$"
    with pytest.raises(WriteError, match=reason) as caught:
        write_bytes(path, b"n" * (small_files + 1))
    assert caught.value.is_full
    assert path.read_bytes() == b"o" * small_files
    assert os.listdir(tmp_path) == ["a"]


def test_the_writers_own_error_for_a_refused_write_is_replaced(tmp_path: Path, small_files: int):
    """torch's writer hides the disk's error behind one about its container."""

    def write(file: Any) -> None:
        try:
            for _ in range(4):
                file.write(b"n" * 5_000)
                file.flush()
        except OSError:
            raise RuntimeError("unexpected pos 5632 vs 5526") from None

    with pytest.raises(WriteError, match=r"a: cannot be written: File too large \(20,000 bytes needed"):
        write_with(tmp_path / "a", write)
    assert os.listdir(tmp_path) == []


def test_errors_that_are_not_about_the_disk_stay(tmp_path: Path):
    with pytest.raises(RuntimeError, match="of its own"):
        write_with(tmp_path / "a", _fail)
    with pytest.raises(FileNotFoundError, match="elsewhere"), replacing(tmp_path / "a"):
        (tmp_path / "elsewhere").read_bytes()
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match=r"file/a: cannot be written: .*\(1 bytes needed, ") as caught:
        write_bytes(tmp_path / "file" / "a", b"x")
    assert not caught.value.is_full


def _fail(file: Any) -> None:
    raise RuntimeError("of its own")


def test_a_durable_write_is_on_the_disk_before_it_replaces(tmp_path: Path, monkeypatch):
    path, steps = tmp_path / "a", []
    replace = os.replace
    monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: steps.append(os.fstat(descriptor).st_size))
    monkeypatch.setattr(atomic.os, "replace", lambda *names: (steps.append("replace"), replace(*names)))
    with replacing(path, durable=True) as temporary:
        temporary.write_text("12345")
    assert steps == [5, "replace"]
    assert path.read_text() == "12345"


WRITER = """
import sys
from pathlib import Path
from kmcl.storage.atomic import write_text
for _ in range(300):
    write_text(Path(sys.argv[1]), sys.argv[2] * 100_000)
"""


def test_processes_that_write_the_same_file_do_not_mix(tmp_path: Path):
    path = tmp_path / "a"
    write_text(path, "a" * 100_000)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), letter]) for letter in "ab"]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        text = path.read_text()
        assert text in ("a" * 100_000, "b" * 100_000)
        seen.add(text[0])
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen == {"a", "b"}
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_killed_process_left_is_removed_a_day_later(tmp_path: Path):
    path = tmp_path / "a[1].ckpt"
    with replacing(path) as temporary:
        old, other = (temporary.with_name(temporary.name.replace("a[1]", name)) for name in ("a[1]", "a1"))
        temporary.write_text("x")
    for left in (old, other):
        left.write_text("left")
    write_text(path, "y")
    assert old.exists()  # it may be a file that another process is writing
    for left in (old, other):
        os.utime(left, (1, 1))
    write_text(path, "z")
    assert {file.name for file in tmp_path.iterdir()} == {path.name, other.name}
