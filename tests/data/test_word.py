"""The dataset word, options and the light import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.readers import READERS
from kmcl.data.word import DatasetWord, parse_dataset_word
from kmcl.errors import InputError


@pytest.mark.parametrize(
    ("word", "kind", "location"),
    [
        ("digits", "digits", None),
        ("table:a/labels.csv", "table", Path("a/labels.csv")),
        ("a/labels.tsv", "table", Path("a/labels.tsv")),
        ("coco2014:/data/a:b", "coco2014", Path("/data/a:b")),
    ],
)
def test_word_is_split_into_kind_and_location(word: str, kind: str, location: Path | None) -> None:
    parsed = parse_dataset_word(word, READERS)
    assert parsed == DatasetWord(kind, location)
    assert parse_dataset_word(str(parsed), READERS) == parsed


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("coco2015:/data", "coco2014"),
        ("digts", "did you mean 'digits'"),
        ("voc2007:", "voc2007:PATH"),
        ("voc2007", "voc2007:PATH"),
        ("digits:somewhere", "no place on disk"),
        ("  ", "empty"),
    ],
)
def test_wrong_word_is_refused_with_a_hint(word: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(word)


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
        model = reader.load_options()
        assert {"seed", "subset"} <= set(model.model_fields), kind


def test_importing_the_package_stays_light() -> None:
    heavy = ("pandas", "PIL", "sklearn", "pydantic")
    code = f"import sys, kmcl.data; print([name for name in {heavy} if name in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
