"""reStructuredText and Org, indexed as written: headings, code, names of texts, and link targets."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from qmd.ingest.links import MAX_LINKS, MAX_TEXT_CHARACTERS
from qmd.ingest.markdown import MAX_HEADING_CHARACTERS, MAX_HEADINGS, MAX_TAGS, FrontMatter, Span
from qmd.ingest.outline import Outline
from qmd.note_names import MAX_ALIASES
from qmd.records import Heading, Link, MetadataValue

_MOST_LABELS = 1_000
_RUN, _BLANK = r"[!-/:-@\[-`{-~]", r"[^\S\n]*+"
_RST_MARK = re.compile(
    rf"(?m)^(?:(?P<over>({_RUN})\2++){_BLANK}\n{_BLANK})?(?!\.\. |({_RUN})\3*+{_BLANK}$)(?P<text>\S[^\n]*+)\n"
    rf"(?P<under>(?(over)(?P=over)|({_RUN})\6++)){_BLANK}$"
    r"|^(?P<indent>[ \t]*+)(?:\.\. (?:code|code-block|sourcecode|parsed-literal|prompt|testcode)::[^\n]*+"
    rf"|(?!\.\. )[^\n]*::{_BLANK})$"
)
_RST_LABEL = re.compile(rf"(?m)^{_BLANK}\.\. _`?([^\n:`]{{1,200}})`?:{_BLANK}$")
_RST_INLINE = re.compile(r":[a-z][\w:.+-]{0,40}:(?=`)|`+[!~]?")
_RST_LINK = re.compile(
    r"(?m):doc:`(?P<doc>[^`\n]{1,500})`|:(?:ref|any):`(?P<ref>[^`\n]{1,500})`|`(?P<named>[^`\n]{1,500}>)`_"
    rf"|^{_BLANK}\.\. toctree::[^\n]*+\n(?P<tree>(?:{_BLANK}\n|[ \t]++[^\n]*+\n?)*+)"
)
_ORG_MARK = re.compile(
    rf"(?mi)^(?:(?P<stars>\*+) +(?P<text>[^\n]*)|{_BLANK}#\+(?P<block>begin|end)_(?:src|example)\b"
    rf"|{_BLANK}(?:#\+|:)(?P<key>(?<=\+)(?:title|filetags|date|author)|(?<=:)(?:id|custom_id|roam_aliases)):"
    rf"{_BLANK}(?P<value>\S[^\n]*))"
)
_ORG_STATE = re.compile(r"(?:(?:TODO|DONE) +)?(?:\[#\w\] +)?(?=\S)")
_ORG_LINK = re.compile(
    r"\[\[(?:id:(?P<id>[^]\[\n]{1,500})|(?:file:)?(?P<file>[^]\[\n]{1,500}))\](?:\[(?P<shown>[^]\[\n]{1,500})\])?\]"
)
_NO_NOTE = re.compile(r"[A-Za-z][\w+.-]*:(?!:)|//|[#:]|\Z|(?:genindex|(?:py-)?modindex|search|self)\Z|[^*]*(?<!::)\*")
"""Web addresses, places in the same text, options, pages that Sphinx generates, and patterns."""


def outline_rst(text: str) -> Outline:
    """Return the outline of reStructuredText: heading marks get levels in order of appearance."""
    headings: list[Heading] = []
    levels: dict[tuple[str, bool], int] = {}
    code: list[Span] = []
    position = 0
    while match := _RST_MARK.search(text, position):
        position = match.end()
        if (indent := match["indent"]) is not None:
            end = re.compile(rf"\n(?=[ \t]{{0,{len(indent)}}}\S)").search(text, position)
            stop = end.start() if end is not None else len(text)
            code += [(match.start(), stop)] if text[position:stop].strip() else []
            position = stop
        elif len(match["under"]) < min(len(match["text"].rstrip()), 4):
            position = match.start("under")
        elif len(headings) < MAX_HEADINGS:
            level = levels.setdefault((match["under"][0], bool(match["over"])), len(levels) + 1)
            words = _RST_INLINE.sub("", match["text"][: 2 * MAX_HEADING_CHARACTERS]).strip()
            headings.append(Heading(min(level, 6), words[:MAX_HEADING_CHARACTERS], match.start("text")))
    title, labels = headings[0].text if headings else None, tuple(_RST_LABEL.findall(text)[:_MOST_LABELS])
    return Outline(FrontMatter(), tuple(headings), tuple(code), title, _links(_RST_LINK, text, code), labels)


def outline_org(text: str) -> Outline:
    """Return the outline of an Org text, its tags, other names and day as front matter."""
    headings: list[Heading] = []
    code: list[Span] = []
    fields: defaultdict[str, list[str]] = defaultdict(list)
    opened: int | None = None
    for match in _ORG_MARK.finditer(text):
        block, words = (match["block"] or "").lower(), (match["text"] or "").strip()
        if match["key"]:
            fields[match["key"].lower()].append(match["value"].strip()[:MAX_HEADING_CHARACTERS])
        elif block == "begin" and opened is None:
            opened = match.start()
        elif block == "end" and opened is not None:
            code.append((opened, match.end()))
            opened = None
        elif words and opened is None and len(headings) < MAX_HEADINGS:
            last = words.split()[-1]
            if words != last and re.fullmatch(r":(?:[\w@#%]++:)++", last):
                fields["filetags"].append(last)
                words = words.removesuffix(last).rstrip()
            words = _ORG_STATE.sub("", words, count=1)[:MAX_HEADING_CHARACTERS]
            headings.append(Heading(min(len(match["stars"]), 6), words, match.start()))
    title, labels = next(iter(fields["title"]), None), tuple([*fields["id"], *fields["custom_id"]][:_MOST_LABELS])
    front = FrontMatter(_org_metadata(fields))
    return Outline(front, tuple(headings), tuple(code), title, _links(_ORG_LINK, text, code), labels)


def _org_metadata(fields: Mapping[str, Sequence[str]]) -> dict[str, MetadataValue]:
    tags = filter(None, dict.fromkeys(re.split(r"[:\s]+", " ".join(fields["filetags"]))))
    aliases = re.findall(r'"([^"]*)"|([^\s"]+)', " ".join(fields["roam_aliases"]))[:MAX_ALIASES]
    found: dict[str, MetadataValue] = {key: fields[key][0].strip("<>[]") for key in ("date", "author") if fields[key]}
    found |= {"tags": tuple(tags)[:MAX_TAGS], "aliases": tuple(quoted or bare for quoted, bare in aliases)}
    return {key: value for key, value in found.items() if value}


def _links(pattern: re.Pattern[str], text: str, code: Sequence[Span]) -> tuple[Link, ...]:
    """Return links outside code to other files, and to names of places in them."""
    found: list[Link] = []
    line, position, counted = 1, 0, 0
    for begin, end in (*code, (len(text), len(text))):
        for match in pattern.finditer(text, position, begin):
            form, words = next((form, words) for form, words in match.groupdict().items() if words is not None)
            start = match.start(form)
            for one in words.split("\n"):
                shown, _, place = one.rpartition("<")
                place = place.strip().removesuffix(">")
                line, counted, start = line + text.count("\n", counted, start), start, start + len(one) + 1
                if len(found) < MAX_LINKS and (form == "id" or not _NO_NOTE.match(place)):
                    target, *fragment = re.split(r"::[*#]*|#", place, maxsplit=1)
                    shown = " ".join((shown or match.groupdict().get("shown") or "").split())[:MAX_TEXT_CHARACTERS]
                    target += ".rst" * (form in ("doc", "tree"))
                    found.append(Link(target, "".join(fragment), shown, line))
        position = end
    return tuple(found)
