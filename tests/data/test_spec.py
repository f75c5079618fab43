"""The dataset spec, options and the light import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.readers.registry import READERS
from kmcl.data.spec import DatasetSpec, parse_dataset_spec
from kmcl.errors import InputError


@pytest.mark.parametrize(
    ("spec", "kind", "location"),
    [
        ("digits", "digits", None),
        ("table:a/labels.csv", "table", Path("a/labels.csv")),
        ("a/labels.tsv", "table", Path("a/labels.tsv")),
        ("coco2014:/data/a:b", "coco2014", Path("/data/a:b")),
    ],
)
def test_spec_is_split_into_kind_and_location(spec: str, kind: str, location: Path | None) -> None:
    parsed = parse_dataset_spec(spec, READERS)
    assert parsed == DatasetSpec(kind, location)
    assert parse_dataset_spec(str(parsed), READERS) == parsed


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("coco2015:/data", "coco2014"),
        ("digts", "did you mean 'digits'"),
        ("voc2007:", "voc2007:PATH"),
        ("voc2007", "voc2007:PATH"),
        ("digits:somewhere", "no location"),
        ("  ", "empty"),
    ],
)
def test_wrong_spec_is_refused_with_a_hint(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(spec)


def test_options_are_converted_from_text_and_checked() -> None:
    assert len(open_dataset("digits", size="12").splits["train"]) == 12
    with pytest.raises(InputError, match=r"'sise'.*did you mean 'size'"):
        open_dataset("digits", sise=12)
    with pytest.raises(InputError, match=r"size='many' of dataset 'digits'"):
        open_dataset("digits", size="many")
    with pytest.raises(InputError, match="size=1 "):
        open_dataset("digits", size=1)


def test_every_reader_of_the_table_can_be_loaded() -> None:
    for kind, reader in READERS.items():
        model = reader.options
        assert {"seed", "subset"} <= set(model.model_fields), kind


def test_importing_the_package_stays_light() -> None:
    heavy = ("torch", "pandas", "sklearn", "pyarrow")
    code = f"import sys, kmcl.data; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
