"""Docstrings here are plain text; Sphinx reads reStructuredText. This translates one into the other.

A docstring has paragraphs, formulas (indented, or a paragraph of their own) and lists of `name: what it is`.
"""

from __future__ import annotations

import re
import textwrap

ENTRY = re.compile(r"^(?P<names>\*{0,2}[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*):\s+(?P<text>\S.*)$")
LITERAL = re.compile(r"``?([^`]+)``?")


def to_restructured_text(lines: list[str]) -> list[str]:
    """The lines of a docstring, already dedented, as reStructuredText."""
    blocks = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    translated: list[str] = []
    for position, block in enumerate(blocks):
        if not block.strip():
            continue
        if block.startswith("    ") or (position > 0 and _is_formula(block)):
            translated += ["::", "", textwrap.indent(textwrap.dedent(block), "    ")]
        else:
            translated += _translate_paragraph(block.splitlines())
        translated.append("")
    return "\n".join(translated).split("\n")


def _is_formula(block: str) -> bool:
    """A paragraph of one or two lines that states an equation and is no sentence."""
    text = block.strip()
    return " = " in text and "`" not in text and text.count("\n") < 2 and not text.endswith((".", ":", ";"))


def _translate_paragraph(lines: list[str]) -> list[str]:
    entries: list[list[str]] = []
    plain: list[str] = []
    for line in lines:
        match = ENTRY.match(line)
        if match and match["names"].islower() and (entries or not plain or plain[-1].endswith((".", ":"))):
            entries.append([f"* **{_escape(match['names'])}**: {_escape(match['text'])}"])
        elif entries and line.startswith(" "):
            entries[-1].append(f"  {_escape(line.strip())}")
        elif entries:
            entries[-1].append(f"  {_escape(line)}")
        else:
            plain.append(line)
    listed = [line for entry in entries for line in entry]
    return [*(_escape(line.strip()) for line in plain), *([""] if plain else []), *listed]


def _escape(text: str) -> str:
    """Names in backticks as literals; everything else literally."""
    parts = []
    end = 0
    for match in LITERAL.finditer(text):
        parts += [_escape_plain(text[end : match.start()]), f"``{match[1]}``"]
        end = match.end()
    return "".join([*parts, _escape_plain(text[end:])])


def _escape_plain(text: str) -> str:
    text = re.sub(r"([\\*|`])", r"\\\1", text)
    return re.sub(r"(\w)_(?!\w)", r"\1\\_", text)
