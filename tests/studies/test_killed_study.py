"""A study whose processes are killed: benchmarks/study_kills.py with few members."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from study_kills import Study, run, write_vectors

pytestmark = pytest.mark.slow


def test_a_study_with_kills_ends_complete_and_no_member_is_trained_twice(tmp_path: Path):
    study = Study(tmp_path / "study", write_vectors(tmp_path / "vectors.npz"), num_members=12)
    assert run(study, num_kills=3, seed=1) == 0
    assert (study.num_finished, study.num_kills, study.trained_twice) == (12, 3, set())
    for member in (tmp_path / "study" / "members").iterdir():
        epochs = (member / "epochs.csv").read_text().splitlines()
        assert [line.split(",")[0] for line in epochs[1:]] == ["1", "2"], member.name
    assert (tmp_path / "study" / "table.csv").is_file()
    assert json.loads((tmp_path / "study" / "results.json").read_text())
