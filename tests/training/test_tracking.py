"""What tracking services get of a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kmcl.errors import InputError
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import resolve_settings
from kmcl.training import tracking
from kmcl.training.tracker import Tracker, as_csv, label_tables, result_numbers
from kmcl.training.tracking import Tracking, check_tracking, track_page

METRICS = {
    "best": {"epoch": 3},
    "val": {"evaluation": {"mean_average_precision": 0.25, "threshold": None, "labels": []}},
    "test": {
        "evaluation": {"mean_average_precision": 0.5, "at_threshold": {"CF1": 0.1}, "labels": []},
        "evaluation_own_thresholds": {
            "num_images": 7,
            "mean_average_precision": 0.5,
            "threshold": None,
            "at_threshold": {"CF1": 0.75, "OF1": None},
            "frequency_counts_from": "training",
            "labels": [{"label": "hot, dog", "average_precision": 0.5}, {"label": "cat"}],
        },
    },
}


def test_results_are_those_at_the_chosen_thresholds():
    assert result_numbers(METRICS) == {
        "val/mean_average_precision": 0.25,
        "test/num_images": 7.0,
        "test/mean_average_precision": 0.5,
        "test/at_threshold/CF1": 0.75,
    }
    assert list(label_tables(METRICS)) == ["test"]
    rows = list(csv.DictReader(io.StringIO(as_csv(label_tables(METRICS)["test"]))))
    assert rows[0] == {"label": "hot, dog", "average_precision": "0.5"}
    assert result_numbers({"val": None, "test": None}) == {}


def settings_with(log: str):
    return resolve_settings("digits", flags={"log": log})


def test_the_names_of_logs_are_checked():
    assert settings_with("csv").tracking.names == ["csv"]
    assert settings_with("wandb, tensorboard,wandb").tracking.log == "wandb,tensorboard"
    assert resolve_settings("digits").tracking.names == ["tensorboard"]
    with pytest.raises(
        InputError, match=r"log: .*must be one of tensorboard, mlflow, wandb, csv.* got 'mlfow'"
    ):
        settings_with("csv,mlfow")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    check_tracking(settings_with("csv,tensorboard"))
    with pytest.raises(InputError, match=r"--log wandb needs the package wandb: pip install 'kmcl\[wandb\]'"):
        check_tracking(settings_with("tensorboard,wandb"))
    monkeypatch.setattr(tracking, "find_spec", lambda name: True)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError, match="--log mlflow needs a tracking server: set MLFLOW_TRACKING_URI"):
        check_tracking(settings_with("mlflow"))


class FakeTracker(Tracker):
    """Keeps what it is sent; `broken` names the calls that fail."""

    name, title = "mlflow", "Fake"
    sent: list[tuple[str, Any]]
    broken: tuple[str, ...] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent = type(self).sent

    @property
    def logger(self) -> Any:
        return SimpleNamespace(
            version="id of the run", log_hyperparams=lambda values: self._take("settings", values)
        )

    def _take(self, what: str, value: object) -> None:
        if what in self.broken:
            raise ConnectionError(f"no {what}\nand a long story")
        self.sent.append((what, value))

    def _open(self) -> None:
        self._take("open", self._known_id)

    def _send_results(self, metrics: Mapping[str, Any]) -> None:
        self._take("results", [path.name for path in self._files])

    def _send_page(self, page: Path) -> None:
        self._take("page", page.name)

    def close(self, *, failed: bool) -> None:
        self._take("close", failed)


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, Any]]:
    FakeTracker.sent = []
    monkeypatch.setattr(FakeTracker, "broken", ())
    monkeypatch.setattr(tracking, "TRACKERS", {"mlflow": FakeTracker})
    monkeypatch.setattr(tracking, "find_spec", lambda name: True)
    return FakeTracker.sent


def test_a_resumed_run_goes_on_in_the_same_place(sent, tmp_path: Path):
    settings = settings_with("mlflow")
    (tmp_path / "settings.yaml").write_text(settings.to_yaml())
    for _ in range(2):
        followed = Tracking(RunFolder(tmp_path), settings, print)
        assert len(followed.loggers) == 1
        followed.open()
        followed.start(settings)
        followed.finish(METRICS)
        followed.close(failed=False)
    track_page(tmp_path, tmp_path / "index.html", print)
    assert [what for what, _ in sent] == [
        *("open", "settings", "results", "close"),
        *("open", "results", "close"),
        *("page", "close"),
    ]
    assert [value for what, value in sent if what == "open"] == [None, "id of the run"]
    assert dict(sent)["settings"]["learning_rate"] == settings.optimisation.learning_rate
    assert dict(sent)["results"] == ["settings.yaml"]
    assert json.loads((tmp_path / "logs" / "mlflow.json").read_text()) == {"id": "id of the run"}


def test_a_service_that_fails_ends_a_run_only_at_its_start(sent, tmp_path: Path, monkeypatch, capsys):
    settings = settings_with("mlflow")
    followed = Tracking(RunFolder(tmp_path), settings, print)
    monkeypatch.setattr(FakeTracker, "broken", ("settings", "results"))
    followed.open()
    followed.start(settings)
    followed.finish(METRICS)
    said = capsys.readouterr().out
    assert said.count("Fake did not take everything: no ") == 2
    assert "story" not in said
    monkeypatch.setattr(FakeTracker, "broken", ("open",))
    with pytest.raises(InputError, match="--log mlflow: no open"):
        followed.open()


def test_csv_alone_has_no_other_log(tmp_path: Path):
    assert Tracking(RunFolder(tmp_path), settings_with("csv"), print).loggers == []
    (logger,) = Tracking(RunFolder(tmp_path), settings_with("tensorboard"), print).loggers
    assert Path(logger.log_dir) == tmp_path / "logs"


def test_mlflow_itself(tmp_path: Path, monkeypatch):
    """On a folder instead of a server, which this variable still allows."""
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    run = RunFolder(tmp_path / "run")
    run.model.mkdir(parents=True)
    (run.model / "model.json").write_text("{}")
    settings = settings_with("mlflow")
    run.write_settings(settings)
    followed = Tracking(run, settings, print)
    followed.open()
    followed.start(settings)
    followed.loggers[0].log_metrics({"val/map": 0.5}, step=3)
    followed.finish(METRICS)
    client = mlflow.MlflowClient()
    found = client.get_run(json.loads((run.logs / "mlflow.json").read_text())["id"])
    assert found.data.metrics == {"val/map": 0.5, **result_numbers(METRICS)}
    assert found.data.params["batch_size"] == str(settings.optimisation.batch_size)
    assert found.info.status == "FINISHED"
    names = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert names == {"labels-test.csv", "model", "settings.yaml"}
