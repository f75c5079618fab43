"""The documentation site: `make docs`, then open docs/_build/html/index.html."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from building import formulas
from building.commands import command_reference
from building.docstrings import to_restructured_text
from building.linked_names import link_names
from building.package_table import package_table
from building.presets import preset_table
from building.python_names import reference, shortcuts
from building.reader_options import reader_options
from pygments.lexers import TextLexer

from kmcl import __version__
from kmcl.encoders.torchvision_operators import declare_missing_operators

declare_missing_operators()  # before anything imports torchvision

project = "kmcl"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "building"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "kmcl"
html_static_path = ["building"]
html_css_files = ["style.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"

# The prompt of a shell or of Python is not copied.
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

default_role = "code"
smartquotes = False  # flags keep both their dashes
autodoc_inherit_docstrings = False  # torch's own words on forward()
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 90
python_display_short_literal_types = True
toc_object_entries_show_parents = "hide"
# Types of other projects have their own documentation; shapes and our own short names are no links.
# Constraints of pydantic fields are annotations that autodoc takes for names of the module.
nitpick_ignore_regex = [
    ("py:.*", r"(?!kmcl\.).*"),
    ("py:class", r"kmcl\..*\.(Annotated|parse_duration|_split_names)"),
]

GENERATED = {
    "commands": command_reference,
    "packages": package_table,
    "presets": preset_table,
    "reader options": reader_options,
    "shortcuts": shortcuts,
}


def fill_generated_parts(app: Any, page: str, source: list[str]) -> None:
    """Put what is made from the program in the place of its marker, `<!-- generated: NAME -->`."""
    for name, make in GENERATED.items():
        marker = f"<!-- generated: {name} -->"
        if marker in source[0]:
            source[0] = source[0].replace(marker, make())
    if page.startswith("reference/") and page not in ("reference/index", "reference/kmcl"):
        source[0] += "\n" + reference(f"kmcl.{page.removeprefix('reference/')}") + "\n"


def translate_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    if what == "data":
        names = [f"``{key}``" for key in value] if isinstance(value, Mapping) else []
        lines[:] = [f"One of {', '.join(names)}."] if names else []
    elif lines and getattr(value, "__module__", "kmcl").startswith("kmcl"):
        lines[:] = to_restructured_text(lines)


def leave_out(app: Any, what: str, name: str, value: Any, skip: bool, options: Any) -> bool | None:
    """Fields of named tuples without a docstring are in the signature already."""
    return True if (getattr(value, "__doc__", None) or "").startswith("Alias for field") else None


def setup(app: Any) -> None:
    app.add_lexer("csv", TextLexer)
    app.add_html_math_renderer("mathml", (formulas.visit_inline, None), (formulas.visit_block, None))
    app.connect("source-read", fill_generated_parts)
    app.connect("autodoc-process-docstring", translate_docstring)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("doctree-resolved", link_names)
