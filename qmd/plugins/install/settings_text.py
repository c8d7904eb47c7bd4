"""One value in a text of settings, JSON with comments or TOML, set or removed; the rest stays byte for byte.

No library keeps the comments of JSON, and the one for TOML moves them from table to table. So the text is changed at
one place, and its content is compared with the content before: only the entry may differ.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

Keys = tuple[str | int, ...]
"""Names of members and numbers of list items, from the outermost."""

_STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"?'
# Unclosed text is matched to its end at once: a new search from each mark would take quadratic time.
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)")
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_SPACE = re.compile(r"[ \t\r\n]*")
_INDENT = re.compile(r"\n([ \t]+)\S")
_DECODER = json.JSONDecoder()


def parsed_text(text: str, *, is_toml: bool) -> Any:
    """Return the parsed settings; ValueError if they are no JSON (with comments and last commas) and no TOML."""
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text) if is_toml else json.loads(_strict(text)) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def entry_in(settings: Any, keys: Keys) -> Any:
    """Return the value at the keys; None without one."""
    for key in keys:
        settings = _parts(settings).get(key)
    return settings


def _parts(settings: Any) -> dict[str | int, Any]:
    """Return the members of an object, or the items of a list by number."""
    if isinstance(settings, list):
        return dict(enumerate(settings))
    return settings if isinstance(settings, dict) else {}


def changed_text(text: str, keys: Keys, value: object, *, is_toml: bool) -> str:
    """Return the text with an entry of `value`, or without it for None; missing objects and lists are created.

    Raises:
        ValueError: It is neither JSON nor TOML, or the entry has a form that is not changed here.
    """
    mark, body = text[: text.startswith("\ufeff")], text.removeprefix("\ufeff")
    has_returns = body.count("\r\n") == body.count("\n") > 0
    body = body.replace("\r\n", "\n") if has_returns else body
    before = parsed_text(body, is_toml=is_toml)
    try:
        changed = (_change_toml if is_toml else _change_json)(body, keys, value)
        after = parsed_text(changed, is_toml=is_toml)
        place = keys
        if value is None and isinstance(keys[-1], int):  # Later items get other numbers, so the whole list is compared.
            place = keys[:-1]
            value = [one for number, one in enumerate(entry_in(before, place)) if number != keys[-1]]
        is_right = entry_in(after, place) == value and _without(after, place) == _without(before, place)
    except (LookupError, ValueError):
        is_right = False
    if not is_right:
        raise ValueError(f"'{'.'.join(map(str, keys))}' has a form that qmd does not change")
    return mark + (changed.replace("\n", "\r\n") if has_returns else changed)


def _without(settings: Any, keys: Keys) -> Any:
    """Return settings without the value at the keys, and without the objects and lists that are empty then."""
    if not keys or not isinstance(settings, dict | list):
        return None if not keys else settings
    rest = {**_parts(settings)}
    below = _without(rest.pop(keys[0], None), keys[1:])
    return {**rest, keys[0]: below} if below else rest


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else " " * len(found[0])


def _strict(text: str) -> str:
    """Return JSON with blanks for its comments and last commas, so that all offsets stay the same."""
    return _LAST_COMMA.sub(_blanked, _COMMENT.sub(_blanked, text))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _members(strict: str, at: int) -> Mapping[str | int, tuple[int, int, int]]:
    """Return for each member or item its start, the start of its value, and its end; the last of equal names."""
    if strict[at] not in "{[":
        raise ValueError("no object or list")
    members: dict[str | int, tuple[int, int, int]] = {}
    place = _skip(strict, at + 1)
    while strict[place] not in "}]":
        start = value = place
        key: str | int = len(members)
        if strict[at] == "{":
            key, place = _DECODER.raw_decode(strict, start)
            value = _skip(strict, _skip(strict, place) + 1)
        _, end = _DECODER.raw_decode(strict, value)
        members[key] = (start, value, end)
        place = _skip(strict, end)
        place = _skip(strict, place + 1) if strict[place] == "," else place
    return members


def _change_json(text: str, keys: Keys, value: object) -> str:
    text = text if text.strip() else "{}\n"
    strict = _strict(text)
    unit = indent[1] if (indent := _INDENT.search(text)) else "  "
    start = end = at = _skip(strict, 0)
    for depth, key in enumerate(keys):
        members = _members(strict, at)
        if key not in members:
            for missing in reversed(keys[depth + 1 :]):
                value = {missing: value} if isinstance(missing, str) else [value]
            outer, rest = _indent(text, at), text[at + 1 :]
            name = f"{json.dumps(key)}: " if isinstance(key, str) else ""
            member = f"\n{outer}{unit}{name}{_dumped(value, unit, outer + unit)}"
            if members and isinstance(key, int):
                return _append(text, max(end for _, _, end in members.values()), member)
            # A new first member: the comments after other members stay with them.
            comma, last = "," if rest[:1].isspace() else ", ", f"\n{outer}" if rest[:1] in "}]" else ""
            return text[: at + 1] + member + (comma if members else last) + rest
        start, at, end = members[key]
    if value is not None:
        return text[:at] + _dumped(value, unit, _indent(text, start)) + text[end:]
    return _cut(text, start, end)


def _append(text: str, end: int, item: str) -> str:
    """Add an item to a list, behind the comments of the last one, which has this end."""
    plain = _COMMENT.sub(_blanked, text)
    close = plain.index("]", end)
    comma = plain[end:close].strip()
    line = plain.rfind("\n", plain.index(comma, end), close)
    stop = close if line < 0 else line
    return text[:end] + ("" if comma else ",") + text[end:stop] + item + comma + text[stop:]


def _cut(text: str, start: int, end: int) -> str:
    """Remove a member or an item with one comma, and its line if that is blank then."""
    plain = _COMMENT.sub(_blanked, text)
    before, behind = len(plain[:start].rstrip()) - 1, _skip(plain, end)
    head, tail = text[:start], text[end:]
    if plain[behind] == ",":
        tail = text[end:behind] + text[behind + 1 :]
    elif plain[before] == ",":
        head = text[:before] + text[before + 1 : start]
    tail = tail.lstrip(" \t")
    head = head.rstrip(" \t") if tail[0] in "\n}]" else head
    return (head.removesuffix("\n") if tail[0] == "\n" else head) + tail


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _dumped(value: object, unit: str, indent: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"\n{indent}")


def _change_toml(text: str, keys: Keys, value: object) -> str:
    """Return the text with tables in place of those of this name, else at its end."""
    name = r"[ \t]*\.[ \t]*".join(rf"[\"']?{re.escape(str(key))}[\"']?" for key in keys)
    # A header and its rows; comments and blank lines before the next header belong to that one.
    one = rf"[ \t]*\[[ \t]*{name}[ \t]*[.\]].*\n?(?:(?:[ \t]*(?:#.*)?\n)*[ \t]*[^\s\[#].*\n?)*"
    own = re.compile(rf"^{one}(?:(?:[ \t]*\n)*{one})*", re.MULTILINE)
    table = _toml_table(keys, value) if value else ""
    if first := own.search(text):
        return text[: first.start()] + table + own.sub("", text[first.end() :])
    return text + ("\n" * (2 - text.endswith("\n")) if text and table else "") + table


def _toml_table(keys: Keys, value: Any) -> str:
    """Return a table of strings, lists of them, and such tables, whose JSON is also TOML."""
    text = f"[{'.'.join(map(str, keys))}]\n"
    for key, one in sorted(value.items(), key=lambda row: isinstance(row[1], dict)):
        is_table = isinstance(one, dict)
        text += (
            f"\n{_toml_table((*keys, key), one)}" if is_table else f"{key} = {json.dumps(one, ensure_ascii=False)}\n"
        )
    return text.replace("\x7f", "\\u007f")
