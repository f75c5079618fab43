"""Scoring with Ray Data on this machine, a worker killed on the way: is every image there once?

    python benchmarks/ray_scoring.py --num-images 20000

Photographs (generated ones without --images) are written at 128 px, with new names as often as needed, and
scored by an untrained EfficientNet-Lite0 at that size on two workers of one core each. A tenth after the
beginning, one worker gets kill -9. Needs the extras `ray` and `export`.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd
import ray
from PIL import Image

from kmcl.interop import score_dataset
from kmcl.serving import load
from kmcl.serving.engine import with_engine
from kmcl.serving.engine_choice import Engine
from kmcl.serving.onnx_predictor import OnnxPredictor
from serving import PHOTOGRAPHS, read_images, untrained

SIZE = 128
WORKERS = 2


def write_images(source: Path, number: int, folder: Path) -> None:
    contents, _ = read_images(source)
    small = []
    for content in contents[:1000]:
        file = io.BytesIO()
        Image.open(io.BytesIO(content)).convert("RGB").resize((SIZE, SIZE)).save(file, "JPEG")
        small.append(file.getvalue())
    for index in range(number):
        (folder / f"{index:06d}.jpg").write_bytes(small[index % len(small)])


def kill_a_worker(output: Path, num_files: int) -> None:
    """End a process that holds the model once that many files of scores are there."""
    from ray_workers import processes_of

    while len(list(output.glob("*.parquet"))) < num_files:
        time.sleep(0.2)
    victim = processes_of("TableScorer")[0]
    os.kill(victim, signal.SIGKILL)
    print(f"killed worker {victim} after {len(list(output.glob('*.parquet')))} files of scores", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, default=PHOTOGRAPHS)
    parser.add_argument("--num-images", type=int, default=20_000)
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        photos, output = folder / "photos", folder / "scores"
        photos.mkdir()
        write_images(arguments.images, arguments.num_images, photos)
        converted = with_engine(load(untrained(folder / "lite0", SIZE)), Engine.onnxruntime, print)
        assert isinstance(converted, OnnxPredictor)
        num_blocks = max(20, arguments.num_images // 200)
        ray.init(num_cpus=WORKERS + 2, include_dashboard=False, object_store_memory=10**9)
        images = ray.data.read_binary_files(str(photos), include_paths=True, override_num_blocks=num_blocks)
        threading.Thread(target=kill_a_worker, args=(output, num_blocks // 10), daemon=True).start()
        began = time.perf_counter()
        score_dataset(images, converted.path, workers=WORKERS, batch_size=200).write_parquet(str(output))
        seconds = time.perf_counter() - began
        ray.shutdown()
        names = [Path(name).name for name in pd.read_parquet(output, columns=["path"])["path"]]
        expected = sorted(path.name for path in photos.iterdir())
        print(
            f"{len(names):,} rows for {len(expected):,} images, each once: {sorted(names) == expected}; "
            f"{seconds:.0f} s, {len(names) / seconds:.0f} images/s"
        )


if __name__ == "__main__":
    main()
