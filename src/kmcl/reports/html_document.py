"""A page as one HTML file that asks no other site for anything, and runs at most one script of its own."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from string import Template

from kmcl.reports.page_style import CSS

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

DOCUMENT = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
 content="$policy">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$css</style>
</head>
<body>
$body
</body>
</html>
""")


def html_document(title: str, body: str, css: str = "", script: str = "") -> str:
    """The whole file.

    title:  plain text
    body:   HTML
    css:    in addition to the style of all pages
    script: run at the end of the body; the policy allows it by its digest, and no other
    """
    policy = POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy += f"; script-src 'sha256-{digest}'"
        body += f"\n<script>{script}</script>"
    return DOCUMENT.substitute(policy=policy, title=escape(title), css=CSS + css, body=body)
