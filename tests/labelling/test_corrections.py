"""Decisions about findings: written, read, applied; bad ones are refused by line."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.data import Dataset, open_dataset
from kmcl.data.selection import join_splits
from kmcl.errors import InputError
from kmcl.labelling.audit import Audit
from kmcl.labelling.findings_table import correct_labels, findings_to_csv
from mislabelled_squares import COPY, MISSING_GREEN, WRONG_RED, row_of


def write_decisions(path: Path, audit: Audit, dataset: Dataset, decisions: dict[int, str]) -> Path:
    """The table of findings with decisions about some of them, by place."""
    rows = list(csv.DictReader(io.StringIO(findings_to_csv(audit, join_splits(dataset)))))
    for place, decision in decisions.items():
        rows[place]["decision"] = decision
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def listed(audit: Audit, dataset: Dataset) -> list[tuple[str, str]]:
    """Image and label of each row of the table of findings."""
    rows = csv.DictReader(io.StringIO(findings_to_csv(audit, join_splits(dataset))))
    return [(Path(row["image"]).name, row["label"]) for row in rows]


def places_of(audit: Audit, dataset: Dataset) -> tuple[int, int]:
    """Of the two planted errors in that table."""
    places = listed(audit, dataset)
    return places.index((MISSING_GREEN, "green")), places.index((WRONG_RED, "red"))


def test_the_most_suspicious_come_first(audit: Audit, dataset: Dataset) -> None:
    first = list(dict.fromkeys(listed(audit, dataset)))[:3]  # near-duplicates repeat them
    assert set(first) == {(MISSING_GREEN, "green"), (WRONG_RED, "red"), (COPY, "green")}


def targets_of(dataset: Dataset) -> np.ndarray:
    return np.concatenate([split.targets for split in dataset.splits.values()])


def test_only_accepted_suggestions_change_labels(audit: Audit, dataset: Dataset, tmp_path: Path) -> None:
    missing, wrong = places_of(audit, dataset)
    path = write_decisions(tmp_path / "d.csv", audit, dataset, {missing: "accept", wrong: "reject"})
    corrected = correct_labels(dataset, path)
    changed = np.argwhere(targets_of(corrected.dataset) != targets_of(dataset)).tolist()
    assert changed == [[row_of(dataset, MISSING_GREEN), 0]]
    assert (corrected.num_changed, corrected.num_rejected) == (1, 1)
    assert corrected.num_undecided == len(audit.findings) - 2


def test_the_command_writes_a_table_that_opens_again(
    audit: Audit, dataset: Dataset, table: Path, tmp_path: Path
) -> None:
    missing, wrong = places_of(audit, dataset)
    path = write_decisions(tmp_path / "d.csv", audit, dataset, {missing: "accept", wrong: "Accept"})
    output = table.parent / "corrected.csv"
    arguments = ["data", "correct", f"table:{table}", str(path), "--output", str(output)]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "2 labels changed, 0 kept" in result.output
    again = open_dataset(f"table:{output}")
    output.unlink()
    assert again.labels == dataset.labels
    assert [len(split) for split in again.splits.values()] == [
        len(split) for split in dataset.splits.values()
    ]
    changed = np.argwhere(targets_of(again) != targets_of(dataset)).tolist()
    assert sorted(changed) == sorted([[row_of(dataset, MISSING_GREEN), 0], [row_of(dataset, WRONG_RED), 1]])
    assert again.splits["train"].images.name(0) == dataset.splits["train"].images.name(0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("IMAGE,green,1,maybe", "line 2: decision 'maybe' is not accept, reject or empty"),
        ("IMAGE,gren,1,accept", r"has no label 'gren' \(did you mean 'green'\?\)"),
        ("IMAGE,green,2,accept", "suggested must be 0 or 1; got '2'"),
        ("other.png,green,1,accept", "line 2: the dataset has no image other.png"),
    ],
)
def test_bad_decisions_are_refused(dataset: Dataset, tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "d.csv"
    image = dataset.splits["train"].images.name(0)
    path.write_text("image,label,suggested,decision\n" + line.replace("IMAGE", image) + "\n")
    with pytest.raises(InputError, match=message):
        correct_labels(dataset, path)


def test_another_table_is_refused(dataset: Dataset, table: Path) -> None:
    with pytest.raises(InputError, match="there is no column 'label'; is it from kmcl data audit"):
        correct_labels(dataset, table)


def test_a_table_is_not_overwritten_with_its_correction(table: Path, tmp_path: Path) -> None:
    arguments = ["data", "correct", f"table:{table}", str(tmp_path / "d.csv"), "--output", str(table)]
    result = CliRunner().invoke(make_app(), arguments)
    assert isinstance(result.exception, InputError)
    assert "is the dataset itself" in str(result.exception)


def test_groups_are_kept(dataset: Dataset, tmp_path: Path) -> None:
    from dataclasses import replace

    from kmcl.data.table_writing import write_table

    splits = {
        name: replace(split, groups=np.array([f"{name} {row // 2}" for row in range(len(split))]))
        for name, split in dataset.splits.items()
    }
    write_table(replace(dataset, splits=splits), tmp_path / "t.csv")
    again = open_dataset(f"table:{tmp_path / 't.csv'}", allow_outside=True)
    assert again.labels == dataset.labels
    assert again.splits["train"].groups.tolist() == splits["train"].groups.tolist()
