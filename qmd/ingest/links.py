"""The links of a note to other notes: wiki links, embeds, and markdown links to files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from urllib.parse import unquote

from qmd.ingest.markdown import Span, plain_text, split_size
from qmd.records import Link

MAX_LINKS = 20_000
"""Limit per text; one with more is a table of data."""

MAX_TEXT_CHARACTERS = 200
"""Limit for the shown text of a link."""

MAX_TARGET_CHARACTERS = 1_000

# Each expression begins with one character, for a fast search by the engine, and ends on its line and before the mark
# that begins another of its kind. So the time is proportional to the text, for any text.
_WIKI_LINK = r"\[\[([^\[\]\n]+)\]\]"
_LINK = (
    r"\](?:\([ \t]*(?:<([^<>\n]*)>|([^\s()<>]+(?:\([^\s()]*\)[^\s()]*)*))"
    r"(?:[ \t]+(?:\"[^\"\n]*\"|'[^'\n]*'))?[ \t]*\)"
    r"|\[([^\[\]\n]*)\])"
)
_MARK = rf"``+[^\n]*?``+|`[^`\n]*`|{_WIKI_LINK}|{_LINK}"
"""Code spans come first, because they contain no links."""
_DEFINITION = r"\n {0,3}\[([^\[\]\n]+)\]:[ \t]*(?:<([^<>\n]*)>|(\S+))"
_ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:|//|\\\\")
MEDIA = (
    r"(?i)\.(?:png|jpe?g|gif|svg|webp|bmp|ico|avif|heic|tiff?|mp[34]|webm|mov|mkv|avi|wav|ogg|m4a|flac|pdf|zip|gz|xz|7z"
    r"|docx?|xlsx?|pptx?)\Z"
)
"""Endings of media, which few indexes contain and most embeds name: such a link without a target is not broken."""

_DENDRON = r"---\r?\n(?:[^\n]*\n){0,20}?(?:created|updated): '?\d{13}'?\r?\n"
_ID = r"---\r?\n(?:[^\n]*\n){0,20}?id: [^\n]+\n"
"""Front matter of Dendron's notes, whose links have the target after the bar. Without Dendron's times (`_ID`), a name
with dots after the bar is the target."""


def find_links(text: str, code: Sequence[Span]) -> tuple[Link, ...]:
    """Return the links to notes in `text`, front matter included, in order; none from fenced (`code`) or inline code.

    Web addresses are skipped, and markdown links to a place in the same note, which are tables of contents.
    `[[#Heading]]` has an empty target.
    """
    if "[" not in text:
        return ()
    rules: _Rules | None = None
    found: list[Link] = []
    line, counted = 1, 0
    for match in _marks(text, code):
        start = match.start()
        read = _wiki_link if text[start] == "[" else _markdown_link
        # Few markdown links need them.
        if rules is None and (read is _wiki_link or match[match.re.groups] is not None):
            rules = _definitions(text), "" if re.match(_DENDRON, text) else "." if re.match(_ID, text) else None
        target, shown, is_embed = read(match, rules or ({}, None))
        if target is None or not any(target):
            continue
        line += text.count("\n", counted, start)
        counted = start
        shown = split_size(shown)[0] if is_embed else shown
        # The full rule costs ten times as much, and is only needed for a picture in the text.
        shown = plain_text(shown[:MAX_TEXT_CHARACTERS]) if "[" in shown else " ".join(shown.replace("`", "").split())
        found.append(Link(*target, shown[:MAX_TEXT_CHARACTERS], line, is_embed))
        if len(found) == MAX_LINKS:
            break
    return tuple(found)


_Target = tuple[str, str]
"""Note and part of it."""

_Rules = tuple[Mapping[str, _Target], str | None]
"""Definitions of a text, and the characters that a name after the bar must contain to be the target; None if the target
comes before the bar."""


def _wiki_link(match: re.Match[str], rules: _Rules) -> tuple[_Target | None, str, bool]:
    """Return (target, shown text, whether it embeds) of a wiki link."""
    definitions, mark = rules
    written = match[match.lastindex or 0]
    place, bar, shown = written.partition("|")
    if bar and mark is not None:
        name = shown.partition("#")[0].strip()
        if mark in name and " " not in name and not (mark and mark in place):
            place, shown = shown, place
    # In a table the bar is escaped.
    target = _split(place.removesuffix("\\"))
    if definitions:
        # Foam writes the targets of its wiki links at the end of the note.
        target = definitions.get(_label(written), target)
    return target, shown, match.string[max(match.start() - 1, 0) : match.start()] == "!"


def _markdown_link(match: re.Match[str], rules: _Rules) -> tuple[_Target | None, str, bool]:
    """Return the same of a markdown link, to a file or to a definition."""
    quoted, bare, reference = match.groups()[-3:]
    target = _local(bare if quoted is None else quoted) if reference is None else None
    if reference is None and target is None:
        return None, "", False
    shown, is_embed = _shown_text(match.string, match.start())
    return target if reference is None else rules[0].get(_label(reference or shown)), shown, is_embed


def _marks(text: str, code: Sequence[Span]) -> Iterator[re.Match[str]]:
    """Yield possible links outside fenced code, each kind searched alone."""
    marks = re.finditer(_LINK, text)
    if wiki := [*re.finditer(_WIKI_LINK, text)]:
        marks = iter(sorted(chain(marks, wiki), key=re.Match[str].start))
    read, tick = 0, text.find("`")
    for match, behind in pairwise(chain(_outside(marks, code) if code else marks, (None,))):
        assert match is not None
        start, end = match.span()
        if start < read:
            continue
        if -1 < tick < read:
            tick = text.find("`", read)
        before = text[max(text.rfind("\n", read, start), read) : start] if -1 < tick < start else ""
        # A search for all kinds at once decides about a mark that may be code, or that begins inside another mark.
        if "``" in before or before.count("`") % 2 or (behind is not None and behind.start() < end):
            line, end = max(text.rfind("\n", read, start) + 1, read), text.find("\n", end)
            end = len(text) if end < 0 else end
            yield from (one for one in re.compile(_MARK).finditer(text, line, end) if one.lastindex)
        else:
            yield match
        read = end


def _outside(marks: Iterator[re.Match[str]], code: Sequence[Span]) -> Iterator[re.Match[str]]:
    n_passed = 0
    for match in marks:
        while n_passed < len(code) and code[n_passed][1] <= match.start():
            n_passed += 1
        if n_passed == len(code) or match.start() < code[n_passed][0]:
            yield match


def _definitions(text: str) -> Mapping[str, _Target]:
    """Return label → target of each `[label]: place`; the first of equal labels."""
    found: dict[str, _Target] = {}
    for match in re.finditer(_DEFINITION, f"\n{text}") if "]:" in text else ():
        target = _local(match[3] if match[2] is None else match[2])
        if target is not None:
            found.setdefault(_label(match[1]), target)
    return found


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _local(place: str) -> _Target | None:
    """Return (path, fragment) of a markdown link to a file; None if it leads out of the notes or stays in this one."""
    if (":" in place or place[:1] in "#/\\") and (place.startswith("#") or _ELSEWHERE.match(place)):
        return None
    path, _, fragment = place.partition("#")
    path = path.partition("?")[0]
    if "%" in place:
        path, fragment = unquote(path), unquote(fragment)
    path = path.strip()
    return (path[:MAX_TARGET_CHARACTERS], fragment[:MAX_TARGET_CHARACTERS]) if path else None


def _split(place: str) -> _Target | None:
    """Return (note, fragment) of a wiki link; a sign without text after it belongs to the name (`C#`)."""
    if "://" in place and "://" in (place := re.sub(r"\A\s*dendron://[^/]*/", "", place)):
        return None
    name, _, fragment = place.strip().partition("#")
    if name and not fragment:
        name, fragment = place.strip(), ""
    return name.strip()[:MAX_TARGET_CHARACTERS], fragment.strip()[:MAX_TARGET_CHARACTERS]


def _shown_text(text: str, end: int) -> tuple[str, bool]:
    """Return the text of a markdown link whose bracket closes at `end`, and whether it embeds; empty if none opens."""
    floor = max(end - MAX_TEXT_CHARACTERS, 0)
    opening = text.rfind("[", floor, end)
    depth = text.count("]", opening, end) if opening >= 0 else 0
    while depth and opening > floor:
        before = opening
        opening = text.rfind("[", floor, before)
        if opening < 0:
            break
        depth += text.count("]", opening, before) - 1
    if opening < 0:
        return "", False
    return text[opening + 1 : end], text.startswith("!", opening - 1) if opening else False
