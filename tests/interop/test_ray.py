"""Scoring with a real local Ray, one of whose workers is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from brightness_onnx import brightness_model
from kmcl.interop import TableScorer, score_dataset
from ray_workers import processes_of

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="the extra ray is not installed")

NUM_IMAGES = 1500


def kill_a_worker(output: Path, killed: list[int]) -> None:
    """End one process that holds the model, once some scores are there."""
    end = time.monotonic() + 600
    while time.monotonic() < end and len(list(output.glob("*.parquet"))) < 3:
        time.sleep(0.1)
    killed.append(processes_of("TableScorer")[0])
    os.kill(killed[0], signal.SIGKILL)


def test_every_image_once_though_a_worker_is_killed(tmp_path: Path):
    model = tmp_path / "model.onnx"
    model.write_bytes(brightness_model(("bright",)))
    photos, output = tmp_path / "photos", tmp_path / "scores"
    photos.mkdir()
    for number in range(NUM_IMAGES):
        Image.new("RGB", (64, 64), (number % 5,) * 3).save(photos / f"{number:05d}.png")
    (photos / "00007.png").write_bytes(b"no image")
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=2 * 10**8)
    try:
        images = ray.data.read_binary_files(str(photos), include_paths=True, override_num_blocks=30)
        waiting = images.map_batches(lambda rows: [__import__("time").sleep(0.5), rows][1])
        killed: list[int] = []
        thread = threading.Thread(target=kill_a_worker, args=(output, killed))
        thread.start()
        score_dataset(waiting, model, workers=2, batch_size=50).write_parquet(str(output))
        thread.join()
    finally:
        ray.shutdown()
    assert killed
    found = pd.read_parquet(output).sort_values("path", ignore_index=True)
    assert [Path(name).name for name in found["path"]] == [path.name for path in sorted(photos.iterdir())]
    assert found.index[found["error"].notna()].tolist() == [7]
    expected = TableScorer(model)(pd.DataFrame({"path": sorted(map(str, photos.iterdir()))}))
    np.testing.assert_array_equal(found["bright"], expected["bright"])
