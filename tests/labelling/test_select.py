"""Images to label next: what each strategy prefers, and what the command writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.data.writers.labelstudio import LOCAL_FILES, labeling_interface
from kmcl.errors import InputError
from kmcl.labelling.label_studio_tasks import make_task
from kmcl.labelling.strategies import NOISE, STRATEGIES, Candidates, similarities


def unit_vectors(num: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(num, 5))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def candidates_with(**changes: np.ndarray) -> Candidates:
    rng = np.random.default_rng(0)
    values = {
        "probabilities": rng.random((30, 3)),
        "directions": unit_vectors(30, 1),
        "labelled": unit_vectors(8, 2),
    }
    return Candidates(**(values | changes))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_each_strategy_gives_different_images(strategy: str, count: int) -> None:
    chosen = STRATEGIES[strategy](candidates_with(), count, np.random.default_rng(0))
    assert len(chosen) == len(set(chosen.tolist())) == min(count, 30)
    assert set(chosen.tolist()) <= set(range(30))


def test_uncertain_images_come_first() -> None:
    probabilities = np.full((30, 3), 0.01)
    probabilities[[4, 9]] = [[0.5, 0.5, 0.01], [0.5, 0.01, 0.01]]
    chosen = STRATEGIES["uncertain"](
        candidates_with(probabilities=probabilities), 2, np.random.default_rng(0)
    )
    assert chosen.tolist() == [4, 9]


def test_the_next_spread_image_has_the_largest_variance() -> None:
    """Against the posterior variance, computed from the whole covariance at each step."""
    candidates = candidates_with()
    chosen = STRATEGIES["spread"](candidates, 6, np.random.default_rng(0)).tolist()
    known = candidates.labelled
    for place in chosen:
        inside = similarities(known, known) + NOISE * np.eye(len(known))
        across = similarities(candidates.directions, known)
        variances = 1 - (across * np.linalg.solve(inside, across.T).T).sum(axis=1)
        variances[chosen[: chosen.index(place)]] = -1
        assert variances.argmax() == place
        known = np.concatenate([known, candidates.directions[place : place + 1]])


def test_tasks_of_label_studio() -> None:
    probabilities, present = np.array([0.9, 0.2, 0.7]), np.array([True, False, True])
    task = make_task(
        Path("/data/pics/a b.jpg"),
        Path("/data"),
        LOCAL_FILES,
        ("cat", "dog", "a<b"),
        probabilities,
        present,
        "r",
    )
    assert task["data"] == {"image": "/data/local-files/?d=pics/a%20b.jpg"}
    prediction = task["predictions"][0]
    assert prediction["result"][0]["value"] == {"choices": ["cat", "a<b"]}
    assert prediction["score"] == 0.8
    config = ElementTree.fromstring(labeling_interface(("cat", "dog", "a<b")))
    choices = config.find("Choices")
    assert choices is not None
    assert choices.attrib["choice"] == "multiple"
    assert (choices.attrib["name"], choices.attrib["toName"]) == (
        prediction["result"][0]["from_name"],
        prediction["result"][0]["to_name"],
    )
    assert [choice.attrib["value"] for choice in choices] == ["cat", "dog", "a<b"]


def run_select(*arguments: str) -> object:
    return CliRunner().invoke(make_app(), ["select", *arguments])


@pytest.fixture(scope="module")
def run(model: Path, table: Path, tmp_path_factory) -> Path:
    """A run whose dataset has the images 000 to 059, as far as `kmcl select` reads one."""
    import shutil

    from kmcl.runs.folder import RunFolder
    from kmcl.runs.resolution import resolve_settings

    lines = table.read_text().splitlines()
    first = table.parent / "first.csv"
    first.write_text("\n".join([lines[0], *lines[1:61]]) + "\n")
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    shutil.copytree(model, folder.model, dirs_exist_ok=True)
    settings = resolve_settings(
        f"table:{first}", flags={"encoder": "test_resnet", "weights": "none", "epochs": 1}
    )
    folder.write_settings(settings)
    return folder.path


def test_the_command_leaves_out_what_is_labelled(run: Path, table: Path, tmp_path: Path) -> None:
    result = run_select(str(run), str(table.parent / "images"), "--count", "10", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "10 of 121 images chosen" in result.output
    with (tmp_path / "images.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [Path(row["image"]).name for row in rows]
    assert len(set(names)) == 10
    assert all(int(name[:3]) >= 60 for name in names)
    assert all(0 <= float(row["green"]) <= 1 for row in rows)
    tasks = json.loads((tmp_path / "tasks.json").read_text())
    assert [task["data"]["image"].rsplit("/", 1)[1] for task in tasks] == names
    sheet = (tmp_path / "contact_sheet.html").read_text(encoding="utf-8")
    assert sheet.count("<img ") == 10
    assert "figures" not in sheet.split("<footer>")[1]


def test_a_model_without_its_run_takes_all_images(model: Path, table: Path, tmp_path: Path) -> None:
    result = run_select(str(model), str(table.parent / "images"), "--count", "200", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "121 of 121 images chosen" in result.output


def test_nothing_new_is_an_error(run: Path, table: Path, tmp_path: Path) -> None:
    result = run_select(str(run), str(table.parent / "images" / "000.png"), "--output", str(tmp_path))
    assert isinstance(result.exception, InputError)
    assert "all 1 images are in the dataset of the run already" in str(result.exception)
