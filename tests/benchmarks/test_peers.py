"""The driver of benchmarks/peers.py with stand-ins for the peers, which need not be installed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import peers
from kmcl.data import open_dataset
from peer_judging import write_splits
from peer_process import own_environment, run_measured
from peer_results import PeerResult, Point, Results, curves, draw, load_results, markdown_table

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

STAND_IN = """
import json, sys
from pathlib import Path
import numpy as np, pandas as pd
data, output = Path(sys.argv[1]), Path(sys.argv[2])
truth = pd.read_csv(data / "test.csv").drop(columns="image").to_numpy()
for number, scores in enumerate([1 - truth, truth], 1):
    np.savez(output / f"scores-{number:02d}.npz", scores=scores.astype("float32"))
points = [{"seconds": 1.5 * n, "scores": f"scores-{n:02d}.npz"} for n in (1, 2)]
(output / "points.json").write_text(json.dumps(points))
(output / "peer.json").write_text(json.dumps({"version": "1.0", "settings": " ".join(sys.argv[3:])}))
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Twelve images of each split; every third has the first label, every fourth the second."""
    rows = []
    for number in range(36):
        Image.new("RGB", (8, 8), (number * 7, 0, 0)).save(tmp_path / f"{number}.png")
        split = ("train", "val", "test")[number % 3]
        rows.append((f"{number}.png", split, int(number // 3 % 3 == 0), int(number // 3 % 4 == 0)))
    columns = ["image", "split", "cat", "dog"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "labels.csv", index=False)
    return f"table:{tmp_path / 'labels.csv'}"


def run_peers(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["peers.py", "run", *words])
    peers.main()


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "stand_in.py").write_text(STAND_IN)
    (programs / "broken.py").write_text("raise SystemExit('no such weights')")
    monkeypatch.setattr(peers, "PROGRAMS", programs)
    monkeypatch.setattr("peer_process.INTERVAL", 0.1)  # a stand-in takes a second
    broken = peers.Peer("broken.py")
    monkeypatch.setattr(peers, "PEERS", {"good": peers.Peer("stand_in.py", epochs=3), "broken": broken})
    return programs


def test_splits_are_those_of_the_table(table, tmp_path):
    write_splits(open_dataset(table), tmp_path / "data")
    labels = pd.read_csv(tmp_path / "labels.csv")
    for split in ("train", "val", "test"):
        written = pd.read_csv(tmp_path / "data" / f"{split}.csv")
        expected = labels[labels.split == split]
        assert [Path(path).name for path in written.image] == list(expected.image)
        assert all(Path(path).is_absolute() for path in written.image)
        np.testing.assert_array_equal(written[["cat", "dog"]], expected[["cat", "dog"]])


def test_scores_are_judged_and_a_finished_peer_is_not_run_again(
    table, tmp_path, stand_in, monkeypatch, capsys
):
    words = (table, "--peers", "good", "--output", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        run_peers(monkeypatch, *words)
    assert ended.value.code == 0
    result = load_results(tmp_path / "out").runs["good"]
    assert [point.seconds for point in result.points] == [1.5, 3.0]
    assert result.points[0].map < 0.5  # reversed scores
    assert result.last.map == 1.0
    assert "--epochs 3" in result.settings  # the peer's own number
    assert result.peak_bytes > 2**20

    (stand_in / "stand_in.py").write_text("raise SystemExit('ran again')")
    with pytest.raises(SystemExit) as ended:
        run_peers(monkeypatch, *words)
    assert ended.value.code == 0
    assert "finished before, 100.0 test mAP" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        run_peers(monkeypatch, *words, "--again", "good")
    assert ended.value.code == 1


def test_a_peer_that_fails_does_not_stop_the_others(table, tmp_path, stand_in, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run_peers(monkeypatch, table, "--peers", "broken,good", "--output", str(tmp_path / "out"))
    assert ended.value.code == 1
    assert list(load_results(tmp_path / "out").runs) == ["good"]
    assert "broken: failed (1)" in capsys.readouterr().err
    assert "no such weights" in (tmp_path / "out" / "broken" / "log.txt").read_text()


def test_results_of_another_image_size_are_not_mixed(table, tmp_path, stand_in, monkeypatch):
    words = (table, "--peers", "good", "--output", str(tmp_path / "out"))
    with pytest.raises(SystemExit):
        run_peers(monkeypatch, *words)
    with pytest.raises(SystemExit, match="128 px, seed 0: choose another --output"):
        run_peers(monkeypatch, *words, "--image-size", "224")


def test_kmcl_is_the_plain_command_with_a_budget(tmp_path, monkeypatch):
    words = ["peers.py", "run", "table:labels.csv", "--peers", "kmcl,kmcl-same", "--budgets", "1m,2m"]
    monkeypatch.setattr(sys, "argv", [*words, "--output", str(tmp_path)])
    runs = list(peers.planned_runs(peers.parse(), tmp_path))
    assert [run.name for run in runs] == ["kmcl 1m", "kmcl 2m", "kmcl-same 1m", "kmcl-same 2m"]
    plain = " ".join(runs[1].command)
    assert "-m kmcl train table:labels.csv --budget 2m --seed 0 --output" in plain
    assert "--weights lite0-pypi --image-size 128" in " ".join(runs[3].command)


def test_an_unknown_peer_is_refused(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run_peers(monkeypatch, "table:labels.csv", "--peers", "fastia", "--output", str(tmp_path))
    assert "fastia: known are" in capsys.readouterr().err


def example(name: str, peer: str, *points: tuple[float, float]) -> PeerResult:
    return PeerResult(
        name,
        peer,
        "2.0",
        "as it is",
        "command",
        [Point(*point) for point in points],
        0.4,
        0.6,
        9,
        2**30,
        2**31,
    )


def example_results() -> Results:
    runs = (
        example("kmcl 5m", "kmcl", (300, 0.75)),
        example("fastai", "fastai", (100, 0.3), (400, 0.5)),
        example("kmcl 1m", "kmcl", (60, 0.6)),
    )
    return Results("table:labels.csv", 128, 0, "2 cores", {run.name: run for run in runs})


def test_results_come_back_from_their_file(tmp_path):
    example_results().save(tmp_path)
    assert load_results(tmp_path) == example_results()


def test_the_table_has_a_row_for_each_run_by_peer_and_time():
    rows = markdown_table(example_results()).splitlines()
    assert [row.split("|")[1].strip() for row in rows[2:]] == ["kmcl 1m", "kmcl 5m", "fastai"]
    assert rows[4] == "| fastai | 2.0 | as it is | 50.0 (40.0 to 60.0) | 400 s | 1.0 GB |"


def test_budgets_are_one_line_and_epochs_another(tmp_path):
    assert curves(example_results()) == {
        "kmcl": [Point(60, 0.6), Point(300, 0.75)],
        "fastai": [Point(100, 0.3), Point(400, 0.5)],
    }
    draw(example_results(), tmp_path / "figures" / "peers.png")
    with Image.open(tmp_path / "figures" / "peers.png") as figure:
        assert min(figure.size) > 500
        assert len(figure.convert("RGB").getcolors(2**24)) > 20  # lines, not an empty page


def test_memory_and_time_are_those_of_all_processes(tmp_path, monkeypatch):
    monkeypatch.setattr("peer_process.INTERVAL", 0.3)
    child = "x = bytearray(80 * 2**20); import time; time.sleep(1.5)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    measured = run_measured([sys.executable, "-c", parent], own_environment(), tmp_path / "log.txt")
    assert measured.returncode == 0
    assert measured.seconds > 1.5
    assert 80 * 2**20 < measured.peak_bytes <= measured.peak_rss < 400 * 2**20


def test_the_clock_of_a_peer_stops_while_test_is_scored(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(peers.PROGRAMS)
    import peer_run

    now = iter([100.0, 130.0, 150.0, 155.0])  # scoring from 100 to 130 and from 150 to 155
    monkeypatch.setattr(peer_run.time, "time", lambda: next(now))
    labels = pd.DataFrame({"image": ["a"], "cat": [1]})
    run = peer_run.PeerRun(labels, labels, labels, tmp_path, 128, 1, 0, started=90.0)
    for _ in range(2):
        run.record(lambda: np.ones((1, 1)))
    points = json.loads((tmp_path / "points.json").read_text())
    assert [point["seconds"] for point in points] == [10.0, 30.0]
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"shape \(2, 1\)"):
        run.record(lambda: np.ones((2, 1)))
