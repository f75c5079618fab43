"""A full disk under cached features: one sentence, status 1, and the run resumes when there is room."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from full_disk import small_disk
from kmcl.cli.app import main
from kmcl.errors import InputError
from kmcl.features import store as cache_space
from kmcl.features.store import advising_on_space
from kmcl.storage.atomic import WriteError
from tiny_runs import TINY_CACHED

MEGABYTE = 2**20


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["kmcl", "train", *map(str, arguments)])
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize("noticed", ["beforehand", "while they are written"])
def test_a_full_disk_under_cached_features(tmp_path: Path, monkeypatch, capsys, noticed: str):
    flags = {name.replace("_", "-"): value for name, value in TINY_CACHED.items() if name != "data_options"}
    given = [f"--{name}={value}" for name, value in (flags | {"epochs": 1, "option": "size=120"}).items()]
    run, cache = tmp_path / "run", tmp_path / "cache"
    if noticed != "beforehand":
        monkeypatch.setattr(cache_space, "require_space", lambda path, num_bytes: None)
    with small_disk(cache, MEGABYTE // 8) as enlarge:
        status = run_command(
            monkeypatch, "digits", *given, "--image-size=64", "--cache-dir", cache, "--output", run
        )
        first, second, *more = capsys.readouterr().err.splitlines()
        assert status == 1
        assert re.match(
            rf"kmcl: {cache}/\w+\.features: cannot be written: No space left on device "
            r"\([\d,]+ bytes needed, [\d,]+ bytes free\); free some space and resume: ",
            first,
        )
        assert second == f"No epoch was finished; start again with: kmcl train --resume {run}"
        assert more == []
        enlarge(8 * MEGABYTE)
        assert run_command(monkeypatch, "--resume", run) == 0
    assert (run / "predictions" / "test.npz").is_file()


def test_a_folder_that_is_refused_is_a_wrong_argument(tmp_path: Path):
    """Not a matter of waiting until there is room."""
    refusal = WriteError(tmp_path / "a.features", PermissionError(13, "Permission denied"), 5)
    reason = r"a\.features: cannot be written: Permission denied$"
    with pytest.raises(InputError, match=reason), advising_on_space():
        raise refusal
