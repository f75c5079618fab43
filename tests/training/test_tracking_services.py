"""Whole runs tracked by the real thing: W&B offline, several loggers at once."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kmcl.runs.resolution import resolve_settings
from kmcl.training.tracking import track_page
from settings_runs import train

TINY = {
    "encoder": "test_convnext",
    "weights": "none",
    "image_size": 32,
    "learning_rate": 2e-3,
    "batch_size": 20,
    "epochs": 2,
    "workers": 0,
    "posthoc": "none",
    "data_options": {"size": 120},
}

BLOCK, HEADER, FILE_HEADER = 32768, 7, 7


def offline_records(path: Path) -> Iterator[Any]:
    """The records of a run that W&B keeps on this machine: a LevelDB log of protocol buffers."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), FILE_HEADER, b""
    while place + HEADER <= len(data):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + HEADER : place + HEADER + size]
        place += HEADER + size
        if kind in (1, 4):  # whole, or the last of several
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def artefact_types(records: list[Any]) -> set[str]:
    return {record.artifact.type for record in records} | {
        record.request.log_artifact.artifact.type for record in records
    }


def wait_for_artefact(logs: Path, kind: str) -> list[Any]:
    """All records; W&B's own process may still write the last of them when the run is finished."""
    end = time.monotonic() + 60
    while True:
        records = [record for file in sorted(logs.rglob("*.wandb")) for record in offline_records(file)]
        if kind in artefact_types(records) or time.monotonic() > end:
            return records
        time.sleep(0.5)


@pytest.mark.slow
def test_wandb_offline_and_tensorboard_at_once(tmp_path: Path, monkeypatch):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tmp_path / "run"
    flags = TINY | {"log": "wandb,tensorboard,csv", "experiment": "photographs"}
    settings = resolve_settings("digits", flags=flags)
    metrics = train(settings, run)
    page = tmp_path / "index.html"
    page.write_text("<p>a report")
    said: list[str] = []
    track_page(run, page, said.append)
    assert said == []
    records = wait_for_artefact(run / "logs", "report")
    starts = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert {start.project for start in starts} == {"photographs"}
    assert len({start.run_id for start in starts}) == 1  # the page goes to the same run
    configured = {item.key for start in starts for item in start.config.update}
    configured |= {item.key for record in records for item in record.config.update}
    assert {"batch_size", "learning_rate", "encoder"} <= configured
    logged = [
        {"/".join(item.nested_key) or item.key for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert sum("train/loss" in names for names in logged) == settings.optimisation.epochs
    summarised = {item.key for record in records for item in record.summary.update}
    summarised |= {"/".join(item.nested_key) for record in records for item in record.summary.update}
    assert "test/mean_average_precision" in summarised, (summarised, list(metrics))
    assert {"model", "report"} <= artefact_types(records)
    assert list((run / "logs").glob("events.*"))
