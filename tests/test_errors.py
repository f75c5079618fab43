"""Messages stay readable whatever value they repeat."""

from __future__ import annotations

import pytest

from kmcl.errors import InputError, shorten, suggest


def test_a_long_value_is_cut_at_80():
    message = str(InputError(f"table t.csv line 2: column 'cat' holds {'x y' * 5000!r}, expected 1 or 0"))
    assert message == f"table t.csv line 2: column 'cat' holds '{('x y' * 27)[:80]}…', expected 1 or 0"


@pytest.mark.parametrize("value", ["a" * 80, "it's " * 15])
def test_shorter_values_stay(value: str):
    assert shorten(f"got {value!r}; expected 'x'") == f"got {value!r}; expected 'x'"


def test_apostrophes_are_no_quotes():
    sentence = "the model's own labels, many and with long names all of them, differ from the run's"
    assert shorten(sentence * 3) == sentence * 3


def test_paths_stay_whole_but_no_name_is_longer_than_a_file_name_may_be():
    path = "/data/" + "/".join(["folder" * 10] * 15)
    assert shorten(f"{path}: is no run folder") == f"{path}: is no run folder"
    assert shorten(f"/data/{'n' * 3000}/a.jpg is gone") == f"/data/{'n' * 80}…/a.jpg is gone"


def test_a_list_of_values_is_cut_in_the_middle():
    message = shorten("no column 'image' among " + ", ".join(f"column{n}" for n in range(9999)) + "; name it")
    assert len(message) <= 2000
    assert message.startswith("no column 'image' among column0, ")
    assert message.endswith("column9998; name it")


def test_a_suggestion_for_a_long_name_takes_no_time():
    assert suggest("epochs" * 100_000, ["epochs"]) == ""
