"""The faults that `make mutants` plants, on a source of a few lines, and its list of explained ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import kmcl
from mutants.__main__ import explanations
from mutants.faults import mutants_of

PACKAGE = Path(kmcl.__file__).parent


def after(source: str) -> set[str]:
    found = mutants_of("file.py", source.encode())
    return {mutant.after for mutant in found if mutant.compiles}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a + b", {"x = a - b"}),
        ("x = a < b", {"x = a <= b", "x = a >= b"}),
        ("x = a is not None", {"x = a is None"}),
        ("x = a and b", {"x = a or b"}),
        ("x = -a", {"x = (a)"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x = 0.5", {"x = 1.0", "x = 0.25"}),
        ("x = True", {"x = False"}),
        ("x = 'ä' + b", {"x = 'ä' - b", 'x = "" + b'}),
        ("x = a if b else c", {"x = a if True else c", "x = a if False else c"}),
        ("x += a", {"x -= a", "x = a"}),
        ("a.append(b)", {"pass", "(a)"}),
        ("x = f(a)", {"x = (a)"}),
        ("x = a.min()", {"x = (a)", "x = a.max()"}),
        ("x = f(a, b=c, d=e)", {"x = f(a,  d=e)", "x = f(a, b=c, )"}),
        ("import a", set()),
        ("def f(a: int) -> int:\n    'Words.'\n    raise ValueError('x' + a)", set()),
        ("__all__ = ['a']", set()),
    ],
)
def test_each_kind_of_fault(source: str, expected: set[str]) -> None:
    assert after(source) == {" ".join(text.split()) for text in expected}


def test_a_mutant_knows_its_lines_and_keeps_its_number() -> None:
    source = "def f(a=1):\n    b = [\n        a + 1,\n    ]\n    return b\n\n\nC = 2\n"
    found = {mutant.after: mutant for mutant in mutants_of("f.py", source.encode())}
    assert (found["a - 1,"].first, found["a - 1,"].last, found["a - 1,"].line) == (2, 4, 3)
    assert (found["def f(a=2):"].first, found["def f(a=2):"].last) == (1, 5)
    assert (found["C = 3"].first, found["C = 3"].last) == (0, 0)
    moved = {mutant.after: mutant for mutant in mutants_of("f.py", b"\n\n" + source.encode())}
    assert moved["a - 1,"].identity == found["a - 1,"].identity != found["C = 3"].identity


def test_every_explained_mutant_still_exists_and_has_a_reason() -> None:
    known: dict[str, set[tuple[str, str]]] = {}
    for each in explanations():
        if each["file"] not in known:
            found = mutants_of(each["file"], (PACKAGE / each["file"]).read_bytes())
            known[each["file"]] = {(mutant.before, mutant.after) for mutant in found}
        assert (each["before"], each["after"]) in known[each["file"]], each
        assert len(each["reason"]) > 10
