"""The whole way with the real Label Studio: tasks, pre-annotations by `kmcl serve`, export, training."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kmcl
from kmcl.data.readers.labelstudio import UPLOAD_CODE
from kmcl.data.writers.labelstudio import labeling_interface
from label_studio_server import PROGRAM, LabelStudio, free_port, running_label_studio, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Label Studio: KMCL_LABEL_STUDIO names its program"),
]

NUM_TRAIN = 40
TOKEN = "s3cret"
TINY = [
    *("--recipe", "paper", "--encoder", "test_convnext", "--weights", "none", "--image-size", "32"),
    *("--augmentation", "light", "--epochs", "2", "--batch-size", "8", "--workers", "0"),
]


def run_kmcl(folder: Path, *arguments: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-m", "kmcl", *arguments],
        cwd=folder,
        env={**os.environ, "KMCL_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes as files with their true labels, and a model of them."""
    root = tmp_path_factory.mktemp("studio")
    run_kmcl(root, "data", "convert", "scenes", "labelstudio:scenes", "-o", f"size={NUM_TRAIN}")
    run_kmcl(root, "train", "labelstudio:scenes/tasks.json", "--output", "first", *TINY)
    return root


@pytest.fixture(scope="module")
def studio(folder: Path) -> Iterator[LabelStudio]:
    with running_label_studio(folder / "label-studio", free_port()) as server:
        yield server


@pytest.fixture(scope="module")
def backend(folder: Path, studio: LabelStudio) -> Iterator[str]:
    port = free_port()
    environment = {
        **os.environ,
        "KMCL_TOKEN": TOKEN,
        "KMCL_CACHE": str(folder / "cache"),
        "LABEL_STUDIO_API_KEY": studio.personal_token(),
    }
    command = [sys.executable, "-m", "kmcl", "serve", "first", "--port", str(port), "--engine", "torch"]
    command += ["--label-studio", "--label-studio-url", studio.url]
    url = f"http://127.0.0.1:{port}"
    with (folder / "serve.txt").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=log)
        try:
            wait_for(url + "/healthz", process, 600, folder / "serve.txt")
            yield url
        finally:
            process.terminate()
            process.wait(60)


def chosen(results: list[dict[str, Any]]) -> set[str]:
    return {label for result in results for label in result["value"]["choices"]}


def test_round_trip(folder: Path, studio: LabelStudio, backend: str) -> None:
    interface = (folder / "scenes" / "label_config.xml").read_text()
    images = sorted((folder / "scenes" / "images").iterdir())
    truth = {
        Path(task["data"]["image"]).name: task["annotations"][0]["result"]
        for task in json.loads((folder / "scenes" / "tasks.json").read_text())
    }
    project = studio.create_project(interface)
    studio.upload(project, images)

    connected = studio.connect_backend(project, backend, TOKEN)
    assert connected["readable_state"] == "Connected"
    studio.retrieve_predictions(project)

    tasks = studio.tasks(project)
    assert len(tasks) == len(images) > NUM_TRAIN
    predictor = kmcl.load(folder / "first")
    expected = {one.name: one for one in predictor.predict([str(image) for image in images])}
    by_name = {Path(name).name: one for name, one in expected.items()}
    for task in tasks:
        assert task["data"]["image"].startswith("/data/upload/")
        name = UPLOAD_CODE.sub("", Path(task["data"]["image"]).name)
        (prediction,) = task["predictions"]
        assert prediction["model_version"] == "first"
        assert 0 < prediction["score"] <= 1
        assert chosen(prediction["result"]) == {label.label for label in by_name[name].present}
        is_accepted = task["id"] % 2 == 0  # the others are corrected
        result = prediction["result"] if is_accepted else truth[name]
        values = {"result": result, "parent_prediction": prediction["id"]}
        studio.call(f"/api/tasks/{task['id']}/annotations/", values)

    (folder / "export.json").write_bytes(studio.export(project))
    (folder / "label_config.xml").write_text(interface)
    exported = json.loads((folder / "export.json").read_text())
    assert len(exported) == len(images)
    run_kmcl(
        folder, "train", "labelstudio:export.json", "-o", "images=scenes/images", "--output", "second", *TINY
    )
    assert kmcl.load(folder / "second").labels == predictor.labels
    for task in exported:
        if task["id"] % 2:
            name = UPLOAD_CODE.sub("", Path(task["data"]["image"]).name)
            assert chosen(task["annotations"][0]["result"]) == chosen(truth[name])


def test_wrong_password_and_unsuitable_project(studio: LabelStudio, backend: str) -> None:
    project = studio.create_project(labeling_interface(("x", "y")), "other labels")
    with pytest.raises(
        AssertionError, match="authentication parameters were either not provided or are incorrect"
    ):
        studio.connect_backend(project, backend, "wrong")
    with pytest.raises(AssertionError, match="422"):
        studio.connect_backend(project, backend, TOKEN)
