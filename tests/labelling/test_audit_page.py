"""The page of an audit: complete without network, decided by keys, and it saves what was decided."""

from __future__ import annotations

import csv
import html
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from chromium import CHROMIUM, Chromium
from kmcl.cli.app import make_app
from kmcl.data import Dataset, open_dataset
from kmcl.data.selection import join_splits
from kmcl.data.table_writing import table_cells
from kmcl.labelling.audit import Audit
from kmcl.labelling.audit_page import audit_page
from mislabelled_squares import MISSING_GREEN, row_of

A, J, R, U = 65, 74, 82, 85


@pytest.fixture(scope="module")
def page(audit: Audit, dataset: Dataset, table: Path, tmp_path_factory) -> Path:
    rows = list(table_cells(dataset, table.parent))
    text = audit_page(audit, "Labels of <squares>", join_splits(dataset), rows, "Save it & go.")
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_finding_has_its_pictures_and_reasons(page: Path, audit: Audit) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<title>Labels of &lt;squares&gt;</title>" in text
    assert text.count('<article class="finding">') == len(audit.findings)
    assert text.count("<img ") == sum(1 + len(finding.neighbours) for finding in audit.findings)
    for finding in audit.findings:
        for reason in finding.reasons:
            assert html.escape(reason) in text
    assert not re.search(r'(src|href)="(?!data:)', text)


def wait_for(path: Path) -> list[dict[str, str]]:
    for _ in range(200):
        if path.is_file() and path.stat().st_size:
            with path.open(newline="") as file:
                return list(csv.DictReader(file))
        time.sleep(0.05)
    raise AssertionError(f"{path} was not saved")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_decisions_from_the_keyboard(page: Path, audit: Audit, dataset: Dataset, tmp_path: Path) -> None:
    place = next(i for i, one in enumerate(audit.findings) if one.row == row_of(dataset, MISSING_GREEN))
    with Chromium(tmp_path) as browser:
        browser.open(page.as_uri(), 1200, 900)
        for _ in range(place):
            browser.press("r", R)
        browser.press("a", A)
        browser.press("r", R)
        browser.press("k", 75)
        browser.press("u", U)
        assert browser.evaluate("document.getElementById('progress').textContent") == (
            f"1 accepted, {place} rejected, {len(audit.findings) - place - 1} open"
        )
        browser.open(page.as_uri(), 390, 844)  # again: what was decided is still there
        assert browser.evaluate("document.querySelectorAll('[data-decision=accept]').length") == 1
        width = browser.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        browser.click("document.getElementById('save-decisions')")
        decisions = wait_for(browser.downloads / "decisions.csv")
        browser.click("document.getElementById('save-table')")
        corrected = wait_for(browser.downloads / "corrected.csv")
        assert browser.messages == []
        assert all(address.startswith(("file:", "data:", "blob:")) for address in browser.requests)
    assert [row["decision"] for row in decisions][: place + 1] == ["reject"] * place + ["accept"]
    everything = join_splits(dataset)
    values = np.array([[int(row[label]) for label in dataset.labels] for row in corrected])
    changed = np.argwhere(values != everything.targets).tolist()
    assert changed == [[row_of(dataset, MISSING_GREEN), 0]]


def test_the_command_with_a_model(table: Path, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "audit"
    arguments = ["data", "audit", f"table:{table}", "--run", str(model), "--count", "5"]
    arguments += ["--output", str(output)]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "labels that are most likely missing: 5" in result.output
    with (output / "findings.csv").open(newline="") as file:
        findings = list(csv.DictReader(file))
    assert 10 <= len(findings) <= 15
    first = next(row for row in findings if row["kind"] == "missing")
    assert f"{first['image']}: {first['label']} is given as absent" in result.output.replace("\n", "")
    known = {
        split.images.name(row)
        for split in open_dataset(str(table)).splits.values()
        for row in range(len(split))
    }
    assert {row["image"] for row in findings} <= known
    assert (output / "audit.html").stat().st_size > 10_000


def test_a_label_that_cannot_be_a_column_leaves_out_the_corrected_table_alone(
    table: Path, model: Path, tmp_path: Path
) -> None:
    """What the reader takes for names is a label here, which `kmcl data correct` refuses by its name."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    named = [["image", "split", "labels"]]
    for row in rows:
        labels = [name for name, column in (("green", "green"), ("Labels", "red")) if row[column] == "1"]
        named.append([str(table.parent / row["image"]), row["split"], "|".join(labels)])
    with (tmp_path / "named.csv").open("w", newline="") as file:
        csv.writer(file).writerows(named)
    output = tmp_path / "audit"
    arguments = ["data", "audit", f"table:{tmp_path / 'named.csv'}", "-o", "allow_outside=true"]
    arguments += ["--run", str(model), "--count", "5", "--output", str(output)]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    assert "no corrected table: a label called 'Labels' cannot be written to a table" in result.output
    assert "Labels" in (output / "findings.csv").read_text()
    shown = (output / "audit.html").read_text(encoding="utf-8")
    assert json.loads(shown.split('id="data">')[1].split("</script>")[0])["table"] is None
