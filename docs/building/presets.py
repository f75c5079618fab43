"""The table of presets, read from the settings."""

from __future__ import annotations

from typing import Any


def preset_table() -> str:
    """Markdown: every setting in which a preset differs from another, in all of them."""
    from kmcl.cli.settings_flags import setting_flags
    from kmcl.runs.resolution import PRESETS, flat_values, resolve_settings

    resolved = {name: flat_values(resolve_settings("digits", name)) for name in PRESETS}
    head = " | ".join(f"`{name}`" for name in resolved)
    rows = [f"| setting | {head} | meaning |", "|---" * (len(resolved) + 2) + "|"]
    for flag in setting_flags():
        values = [settings.get(flag.name) for settings in resolved.values()]
        if any(value != values[0] for value in values):
            cells = " | ".join(_shown(value) for value in values)
            rows.append(f"| `{flag.name}` | {cells} | {flag.help} |")
    return "\n".join(rows)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and 0 < value < 0.1 and (1 / value).is_integer() and 1 / value == 64:
        return "1/64"
    return (
        f"`{value}`" if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else f"{value}"
    )
