"""Write the tables of docs/configuration.md: `python -m tests.docs.configuration_tables`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from qmd.plugins.doctor.variables import SETTINGS, VARIABLES, Area, Variable

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def with_tables(page: str) -> str:
    """Return the page with the current tables between its marks."""
    settings = _table("key", ((one.key, one.effect, one.default) for one in SETTINGS))
    parts = []
    for area in get_args(Area):
        rows = ((one.name, _with_setting(one), one.default) for one in VARIABLES if one.area == area)
        parts.append(f"### {area.capitalize()}\n\n{_table('variable', rows)}")
    return between(between(page, "settings", settings), "variables", "\n".join(parts))


def _with_setting(one: Variable) -> str:
    wins = ", which wins" if one.setting.startswith("models.") else ""
    return f"{one.effect} (`{one.setting}`{wins})" if one.setting else one.effect


def _table(name: str, rows: Iterable[tuple[str, str, str]]) -> str:
    lines = [f"| {name} | what it does | default |", "|---|---|---|"]
    lines += [f"| `{key}` | {effect} | {f'`{default}`' if default else ''} |" for key, effect, default in rows]
    return "\n".join(lines) + "\n"


def between(page: str, mark: str, text: str) -> str:
    """Return the page with `text` between the marks."""
    start, end = f"<!-- {mark} -->\n", "<!-- end -->\n"
    return re.sub(f"{start}.*?{end}", lambda _: f"{start}\n{text}\n{end}", page, count=1, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf-8")), "utf-8")
