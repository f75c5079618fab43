"""Every option of every reader has its row in the generated part of docs/data.md."""

from __future__ import annotations

from importlib import import_module

import pytest

from docs.pages import ROOT
from kmcl.data.readers.frame import FrameOptions
from kmcl.data.readers.options import ReaderOptions
from kmcl.data.readers.registry import READERS

MODELS = {name: reader.options for name, reader in READERS.items()} | {"a DataFrame": FrameOptions}


@pytest.fixture(autouse=True)
def building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


def test_the_page_has_a_place_for_them():
    assert "<!-- generated: reader options -->" in (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", MODELS)
def test_every_option_has_a_meaning_and_a_row(name: str):
    building = import_module("building.reader_options")
    model = MODELS[name]
    assert building.option_meanings(model).keys() == model.model_fields.keys()
    text = building.reader_options()
    start = text.index(f"**{name}**" if name == "a DataFrame" else f"**`{name}")
    rows = text[start:].split("\n\n")[1].splitlines()[2:]
    shared = ReaderOptions.model_fields.keys()
    assert [row.split("`")[1] for row in rows] == [
        option for option in model.model_fields if option not in shared
    ]
    assert all(len(row.replace("\\|", "").split("|")) == 6 for row in rows)


def test_values_and_defaults():
    text = import_module("building.reader_options").reader_options()
    assert "| `difficult` | `positive`, `unknown`, `absent` | `positive` | " in text
    assert "| `val_fraction` | number | `0.1` | " in text
    assert "| `allow_outside` | `true` or `false` | `false` | " in text
    assert "| `ignore_columns` | names, `a,b` |  | columns that are not labels |" in text
