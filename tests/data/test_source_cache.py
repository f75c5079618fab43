"""Arrays cached until their source changes; a cache that cannot be used is no error."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from kmcl.data.source_cache import Arrays, cache_folder, cached_arrays


class Counter:
    """Computes arrays and counts how often it had to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Arrays:
        self.calls += 1
        return {"names": np.array(["å", "b"]), "values": np.array([self.calls])}


def test_computed_once_until_the_source_or_the_version_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "cache"))
    source, compute = tmp_path / "a.json", Counter()
    source.write_text("one")
    first = cached_arrays("a", [source], "1", compute)
    again = cached_arrays("a", [source], "1", compute)
    assert compute.calls == 1
    assert again["names"].tolist() == first["names"].tolist() == ["å", "b"]
    os.utime(source, ns=(1, 1))
    assert cached_arrays("a", [source], "1", compute)["values"].tolist() == [2]
    assert cached_arrays("a", [source], "2", compute)["values"].tolist() == [3]
    assert not list((tmp_path / "cache").rglob(".*.partial*"))


def test_corrupt_cache_file_is_computed_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "cache"))
    source, compute = tmp_path / "a.json", Counter()
    source.write_text("one")
    cached_arrays("a", [source], "1", compute)
    (stored,) = (tmp_path / "cache").rglob("*.npz")
    stored.write_bytes(stored.read_bytes()[:100])
    assert cached_arrays("a", [source], "1", compute)["values"].tolist() == [2]
    assert cached_arrays("a", [source], "1", compute)["values"].tolist() == [2]


def test_unwritable_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where the folder should be")
    monkeypatch.setenv("KMCL_CACHE", str(blocker))
    compute = Counter()
    for calls in (1, 2):
        assert cached_arrays("a", [blocker], "1", compute)["values"].tolist() == [calls]


def test_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KMCL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/kmcl")
    monkeypatch.setenv("KMCL_CACHE", "/y")
    assert cache_folder() == Path("/y")
