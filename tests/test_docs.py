"""What the documentation names exists."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_function_of_the_paper_table_exists():
    import kmcl.kernels

    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    table = text[: text.index("## Where the paper")]
    names = re.findall(r"`([\w.]+)`", table)
    assert len(names) > 12
    for name in names:
        module, _, attribute = name.rpartition(".")
        if name == "torch.distributions":
            continue
        assert hasattr(import_module(module) if module else kmcl.kernels, attribute), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        assert target.startswith("http") or (document.parent / target).exists(), target


def test_the_losses_example_of_the_readme_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = next(
        block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "KMCLObjective" in block
    )
    scope: dict[str, object] = {}
    exec(example, scope)
    assert scope["terms"].total.item() > 0  # type: ignore[attr-defined]
