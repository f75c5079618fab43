"""A full disk under TensorBoard's log is a message, and does not hide what failed before it."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from full_disk import no_room
from kmcl.storage.atomic import WriteError, write_bytes
from kmcl.training.callbacks import explaining_refused_logs
from kmcl.training.lightning import TensorBoardLogger


def log_to(logger: TensorBoardLogger) -> None:
    for step in range(3):
        logger.log_metrics({"loss": 1.0}, step)
        logger.experiment.flush()


def test_the_log_is_named(tmp_path: Path, monkeypatch):
    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    logger = TensorBoardLogger(tmp_path, name="", version="logs")
    reason = r"logs: cannot be written: File too large \([\d,]+ bytes free\)$"
    with pytest.raises(WriteError, match=reason), no_room(), explaining_refused_logs(tmp_path / "logs"):
        log_to(logger)
    assert printed == []


def test_the_file_that_failed_first_is_named(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path, name="", version="logs")

    def run() -> None:
        try:
            write_bytes(tmp_path / "last.ckpt", b"x")
        finally:
            log_to(logger)  # as Lightning does when a run fails

    logs = tmp_path / "logs"
    with pytest.raises(WriteError, match=r"last\.ckpt: cannot"), no_room(), explaining_refused_logs(logs):
        run()


def test_other_errors_stay(tmp_path: Path):
    with pytest.raises(ValueError, match="own"), explaining_refused_logs(tmp_path):
        raise ValueError("own")
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(WriteError, match="No space left"), explaining_refused_logs(tmp_path):
        raise full


def test_ctrl_c_while_the_log_is_closed_stays_ctrl_c(tmp_path: Path):
    logger = TensorBoardLogger(tmp_path, name="", version="logs")
    logger.log_metrics({"loss": 1.0}, 0)
    writer = logger.experiment.file_writer.event_writer

    def close_twice() -> None:
        """As Lightning does: at the end, and again after an interruption."""
        try:
            writer.close()
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            writer.flush()

    with pytest.raises(KeyboardInterrupt) as raised, explaining_refused_logs(tmp_path):
        close_twice()
    assert "closed" in str(raised.value.__cause__)
