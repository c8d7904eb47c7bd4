"""reStructuredText and Org, shown as they are written: headings, code, names of texts, and where links lead."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from qmd.ingest.links import MAX_LINKS, MAX_TEXT_CHARACTERS
from qmd.ingest.markdown import MAX_HEADING_CHARACTERS, MAX_HEADINGS, MAX_TAGS, FrontMatter, Span
from qmd.ingest.outline import Outline
from qmd.names import MAX_ALIASES
from qmd.records import Heading, Link, MetadataValue

_MOST_LABELS = 1_000
_RUN, _BLANK = r"[!-/:-@\[-`{-~]", r"[^\S\n]*+"
_RST_MARK = re.compile(
    rf"(?m)^(?:(?P<over>({_RUN})\2++){_BLANK}\n{_BLANK})?(?!\.\. )(?P<text>\S[^\n]*+)\n(?P<under>({_RUN})\5++){_BLANK}$"
    rf"|^{_BLANK}\.\. _(?P<label>[^\n:`]{{1,200}}):{_BLANK}$"
    r"|^(?P<indent>[ \t]*+)(?:\.\. (?:code|code-block|sourcecode|parsed-literal|prompt|testcode)::[^\n]*+"
    rf"|(?!\.\. )[^\n]*::{_BLANK})$"
)
_RST_LINK = re.compile(
    r"(?m):(?P<role>doc|ref|any):`(?P<place>[^`\n]{1,500})`|`(?P<named>[^`\n]{1,500}>)`_"
    rf"|^{_BLANK}\.\. toctree::[^\n]*+\n(?P<tree>(?:{_BLANK}\n|[ \t]++[^\n]*+\n?)*+)"
)
_RST_INLINE = re.compile(r":[a-z][\w:.+-]{0,40}:(?=`)|`+[!~]?")
_NO_NOTE = re.compile(r"[A-Za-z][\w+.-]*:|//|[#*]|\Z|(?:genindex|(?:py-)?modindex|search)\Z")
"""Addresses of the web, places in the same text, and pages that Sphinx makes."""

_ORG_MARK = re.compile(
    rf"(?mi)^(?:(?P<stars>\*+) +(?P<text>[^\n]*)|{_BLANK}#\+(?P<block>begin|end)_(?:src|example)\b"
    rf"|{_BLANK}(?:#\+|:)(?P<key>(?<=\+)(?:title|filetags|date|author)|(?<=:)(?:id|custom_id|roam_aliases)):"
    rf"{_BLANK}(?P<value>\S[^\n]*))"
)
_ORG_STATE = re.compile(r"(?:(?:TODO|DONE) +)?(?:\[#\w\] +)?(?=\S)")
_ORG_LINK = re.compile(r"\[\[(?:file:|(id:))?([^\[\]\n]{1,1000})\](?:\[([^\[\]\n]{1,500})\])?\]")

_Place = tuple[int, str, str, str]
"""Where in a text it is linked, the target, the fragment of that, and the shown text."""


def outline_rst(text: str) -> Outline:
    """The outline of reStructuredText: marks under headings mean levels in the order in which they come."""
    headings: list[Heading] = []
    levels: dict[tuple[str, bool], int] = {}
    code: list[Span] = []
    labels: list[str] = []
    position = 0
    while match := _RST_MARK.search(text, position):
        position = match.end()
        if (indent := match["indent"]) is not None:
            end = re.compile(rf"\n(?=[ \t]{{0,{len(indent)}}}\S)").search(text, position)
            stop = end.start() if end is not None else len(text)
            code += [(match.start(), stop)] if text[position:stop].strip() else []
            position = stop
        elif match["label"]:
            labels += [match["label"]] * (len(labels) < _MOST_LABELS)
        elif not _is_heading(match["over"], match["text"].strip(), match["under"]):
            position = match.start("under")
        elif len(headings) < MAX_HEADINGS:
            level = levels.setdefault((match["under"][0], bool(match["over"])), len(levels) + 1)
            words = _RST_INLINE.sub("", match["text"][: 2 * MAX_HEADING_CHARACTERS]).strip()
            headings.append(Heading(min(level, 6), words[:MAX_HEADING_CHARACTERS], match.start("text")))
    title, links = headings[0].text if headings else None, _links(_RST_LINK, _rst_places, text, code)
    return Outline(FrontMatter(), tuple(headings), tuple(code), title, links, tuple(labels))


def _is_heading(over: str | None, words: str, under: str) -> bool:
    is_mark = words == words[0] * len(words) and not words[0].isalnum()
    return not is_mark and len(under) >= min(len(words), 4) and over in (None, under)


def _rst_places(match: re.Match[str]) -> Iterator[_Place]:
    tree, role, start = match["tree"], match["role"], match.start()
    if tree is not None:
        role, start = "doc", match.start("tree")
    for words in (match["place"] or match["named"] or tree or "").split("\n"):
        shown, has_place, place = words.rpartition("<")
        place = place.strip().removesuffix(">") if has_place else words.strip()
        if not _NO_NOTE.match(place) and (tree is None or not (place[0] == ":" or "*" in place or place == "self")):
            target, _, fragment = place.partition("#")
            yield start, target + ".rst" * (role == "doc"), fragment, shown
        start += len(words) + 1


def outline_org(text: str) -> Outline:
    """The outline of a text of Emacs' org mode, its tags, other names and day as front matter."""
    headings: list[Heading] = []
    code: list[Span] = []
    fields: defaultdict[str, list[str]] = defaultdict(list)
    opened: int | None = None
    for match in _ORG_MARK.finditer(text):
        block, words = (match["block"] or "").lower(), (match["text"] or "").strip()
        if block == "begin" and opened is None:
            opened = match.start()
        elif block == "end" and opened is not None:
            code.append((opened, match.end()))
            opened = None
        elif match["key"]:
            fields[match["key"].lower()].append(match["value"].strip())
        elif words and opened is None and len(headings) < MAX_HEADINGS:
            last = words.split()[-1]
            if words != last and re.fullmatch(r":(?:[\w@#%]++:)++", last):
                fields["filetags"].append(last)
                words = words.removesuffix(last).rstrip()
            words = _ORG_STATE.sub("", words, count=1)[:MAX_HEADING_CHARACTERS]
            headings.append(Heading(min(len(match["stars"]), 6), words, match.start()))
    return Outline(
        FrontMatter(_org_metadata(fields)),
        tuple(headings),
        tuple(code),
        next((title[:MAX_HEADING_CHARACTERS] for title in fields["title"]), None),
        _links(_ORG_LINK, _org_places, text, code),
        tuple([*fields["id"], *fields["custom_id"]][:_MOST_LABELS]),
    )


def _org_metadata(fields: Mapping[str, Sequence[str]]) -> dict[str, MetadataValue]:
    tags = dict.fromkeys(re.split(r"[:\s]+", " ".join(fields["filetags"])))
    aliases = re.findall(r'"([^"]*)"|([^\s"]+)', " ".join(fields["roam_aliases"]))[:MAX_ALIASES]
    metadata: dict[str, MetadataValue] = {
        "tags": tuple(filter(None, tags))[:MAX_TAGS],
        "aliases": tuple(quoted or bare for quoted, bare in aliases),
        **{key: fields[key][0].strip("<>[]")[:MAX_HEADING_CHARACTERS] for key in ("date", "author") if fields[key]},
    }
    return {key: value for key, value in metadata.items() if value}


def _org_places(match: re.Match[str]) -> Iterator[_Place]:
    target, _, fragment = match[2].partition("::")
    if match[1] or match[0].startswith("[[file:") or not _NO_NOTE.match(target):
        yield match.start(), target, fragment.lstrip("*#"), match[3] or ""


def _links(
    pattern: re.Pattern[str], places: Callable[[re.Match[str]], Iterator[_Place]], text: str, code: Sequence[Span]
) -> tuple[Link, ...]:
    """Links outside code."""
    found: list[Link] = []
    line, position, counted = 1, 0, 0
    for begin, end in (*code, (len(text), len(text))):
        matches = pattern.finditer(text, position, begin)
        for start, target, fragment, shown in chain.from_iterable(map(places, matches)):
            line, counted = line + text.count("\n", counted, start), start
            found.append(Link(target, fragment, " ".join(shown.split())[:MAX_TEXT_CHARACTERS], line))
            if len(found) == MAX_LINKS:
                return tuple(found)
        position = end
    return tuple(found)
