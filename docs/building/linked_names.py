"""Names in code style become links: `kmcl.losses.contrastive_loss` and `kmcl train` to their references.

Pages stay plain Markdown, which reads as well without the site.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.util.nodes import make_refnode

from building.commands import anchor, command_tree, leaf_commands

COMMANDS_PAGE = "commands"


def link_names(app: Any, doctree: nodes.document, page: str) -> None:
    objects = app.env.get_domain("py").objects
    short = {name.rpartition(".")[2]: name for name in objects if name.count(".") > 1}
    commands = {words: anchor(words) for words, _ in leaf_commands(command_tree())}
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.reference) or literal.next_node(nodes.reference):
            continue
        target = _find(literal.astext(), objects, short, commands)
        if target is None or target[0] == page:
            continue
        reference = make_refnode(app.builder, page, target[0], target[1], literal.deepcopy())
        literal.replace_self(reference)
    break_long_names(doctree)


def break_long_names(doctree: nodes.document) -> None:
    """Let names in tables break after a dot, slash, colon or underscore, and nowhere else."""
    for table in doctree.findall(nodes.table):
        for literal in list(table.findall(nodes.literal)):
            text = literal.astext()
            if len(text) < 24:
                continue
            literal.clear()
            for piece in re.split(r"(?<=[._/:|])(?=\w)", text):
                literal += [nodes.Text(piece), nodes.raw("", "<wbr>", format="html")]


def _find(text: str, objects: Any, short: dict[str, str], commands: Any) -> tuple[str, str] | None:
    name = text.removesuffix("()")
    full = name if name in objects else short.get(name) if len(name) > 5 and name.isidentifier() else None
    if full is not None:
        return objects[full].docname, objects[full].node_id
    words = tuple(text.split())
    for length in (3, 2):
        if words[:1] == ("kmcl",) and words[:length] in commands:
            return COMMANDS_PAGE, commands[words[:length]]
    return None
