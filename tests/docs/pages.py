"""What the documentation holds: pages, fenced blocks, and commands inside them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]

TINY = {
    "encoder": "test_convnext",
    "weights": "none",
    "image_size": 32,
    "augmentation": "light",
    "epochs": 1,
    "workers": 0,
}
"""Settings of a training that ends within seconds."""

FENCE = re.compile(
    r"^(?P<ticks>`{3,})(?P<language>[^\n`]*)\n(?P<text>.*?)^(?P=ticks)\s*$", re.DOTALL | re.MULTILINE
)
SHELLS = {"bash", "console", "sh"}
# What may precede `kmcl` on a line that runs it.
STARTER = re.compile(r"^(?:\$ )?(?:(?:torchrun|srun|python)\b.*? )??(?:-m )?kmcl (?P<arguments>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, text and line in the page."""

    page: Path
    language: str
    text: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)} line {self.line}"


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, match["language"].split(" ")[0], match["text"], text.count("\n", 0, match.start()) + 1)
        for match in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[list[str]]:
    """The arguments of each `kmcl` command of a shell block; a line that is something else is an error."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = STARTER.match(line)
        if match is None:
            raise AssertionError(f"{block.place}: {line!r} starts no kmcl; mark what is not run as text")
        found.append(shlex.split(match["arguments"], comments=True))
    return found


def code_spans(page: Path) -> list[str]:
    """Inline code of a page, outside its blocks."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
