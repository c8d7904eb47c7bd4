"""Text and helpers that several formats share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.escapes import LONG_CHARS, address_line, one_line, visible
from qmd.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from qmd.inference.base import EngineDescription
    from qmd.records import Budget, Hit, Mention, Passage, SearchResponse

VERDICT_NOTES = {
    "weak": "no strong match; these are the closest",
    "none": "no good match found",
}
"""Verdict → its note, for verdicts other than `good`."""


def refreshed_line(n_files: int) -> str:
    """Return the note about changed files that a search indexed first."""
    return f"updated {n_files} changed {'note' if n_files == 1 else 'notes'}"


def budget_line(budget: Budget, cursor: str, get: str) -> str:
    """Return the note about an answer with a budget, and how to continue.

    Args:
        cursor: Option or argument for a cursor, `{}`.
        get: Command that reads a note by its docid, `{}`.
    """
    note = f"{budget.used:,} of at most {budget.of:,} tokens"
    if budget.next:
        note += f"; no result fits; to read the best: {get.format(budget.next)}"
    elif budget.cursor:
        more = f"{budget.left} more result{'' if budget.left == 1 else 's'}"
        note += f"; {more}: {cursor.format(budget.cursor)}"
    return f"[{note}]"


def continues_line(place: Mention) -> str:
    """Return the line that names the next session: `continues: minutes/mar-10.md:545 (2021-03-10) "Temporal Pt 2"`."""
    return "continues: {}{}".format(*continues_parts(place))


def continues_parts(place: Mention) -> tuple[str, str]:
    """Return the address of a place in the next session, and its date and words, each without line breaks."""
    document = place.document
    dated = f" ({document.date})" if document.date else ""
    name = address_line(f"{document.collection}/{document.path}")
    return f"{name}:{place.line}", f'{dated} "{one_line(place.text, CONTINUES_CHARS)}"'


def note_lines(hit: Hit) -> list[str]:
    """Return the lines about other notes under a hit: the one that mentions it, and the next session."""
    lines = [continues_line(hit.continues)] if hit.continues else []
    if one := hit.mention:
        lines.insert(0, f"Mentioned: {address_line(one.document.uri)}:{one.line}  {one_line(one.text, LONG_CHARS)}")
    return lines


def note_objects(hit: Hit) -> dict[str, dict[str, object]]:
    """Return the notes of `note_lines` as objects."""
    mention = {"mention": _place_object(hit.mention, hit.mention.text)} if hit.mention else {}
    return mention | continues_object(hit)


def continues_object(hit: Hit) -> dict[str, dict[str, object]]:
    """Return the place in the next session as the field `continues`; without such a place, no field."""
    if (one := hit.continues) is None:
        return {}
    text = one.text if len(one.text) <= CONTINUES_CHARS else f"{one.text[: CONTINUES_CHARS - 1]}…"
    return {"continues": _place_object(one, text) | ({"date": one.document.date} if one.document.date else {})}


def _place_object(place: Mention, text: str) -> dict[str, object]:
    return {"file": place.document.uri, "line": place.line, "text": text}


_NOT_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]"


CONTINUES_CHARS = 120
"""Longest text of a place in the next session."""

CLOSEST = 2
CLOSEST_CHARACTERS = 300
"""Hits, and characters of each passage, in an answer without a good match."""


def worth_showing(response: SearchResponse) -> SearchResponse:
    """Return the answer as shown by default: without a good match, only the closest hits with short passages."""
    if response.verdict != "none":
        return response
    closest = response.hits[:CLOSEST]
    hits = (
        replace(one, passage=in_brief(one.passage, CLOSEST_CHARACTERS), passages=(), continues=None) for one in closest
    )
    return replace(response, hits=tuple(hits))


def count_tail(response: SearchResponse) -> int:
    """Count the weak hits at the end of a good answer, which people and other programs need not see."""
    from qmd.retrieval.calibration import WEAK

    if response.verdict != "good" or response.query.sort != "relevance" or not response.terms:
        return 0
    return len([*takewhile(lambda hit: hit.relevance < WEAK, reversed(response.hits))])


def in_brief(passage: Passage, most: int) -> Passage:
    """Return the lines around the best line, in at most `most` characters; of a long line its start."""
    if len(passage.text) <= most:
        return passage
    lines = passage.text.split("\n")
    first = last = min(passage.line - passage.start_line, len(lines) - 1)
    length = len(lines[first])
    while (first, last) != (0, len(lines) - 1):
        is_before = last == len(lines) - 1 or (first > 0 and len(lines[first - 1]) < len(lines[last + 1]))
        length += 1 + len(lines[first - 1 if is_before else last + 1])
        if length > most:
            break
        first, last = (first - 1, last) if is_before else (first, last + 1)
    return replace(
        passage,
        text="\n".join(lines[first : last + 1])[:most],
        start_line=passage.start_line + first,
        end_line=passage.start_line + last,
        lines_before=passage.lines_before + first,
        lines_after=passage.lines_after + max(passage.end_line - passage.start_line - last, 0),
    )


def json_text(value: object) -> str:
    """Format JSON with two-space indent, literal non-ASCII, whole numbers without `.0`, and a final line feed."""
    import json

    whole = _whole_numbers(value)
    text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        # The path of a file can contain bytes that need an escape.
        return json.dumps(whole, indent=2) + "\n"
    return text


def _whole_numbers(value: object) -> object:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return value


def round_half_up(value: float) -> float:
    """Round to two decimals, halves upwards."""
    return math.floor(value * 100 + 0.5) / 100


def csv_row(fields: Iterable[object]) -> str:
    """Format one CSV line; only fields with a comma, a quote or a line break are quoted."""
    texts = [str(field) for field in fields]
    return ",".join(quoted(text) if re.search('[,"\n\r]', text) else text for text in texts) + "\n"


def quoted(text: str) -> str:
    """Return `text` in double quotes, with inner ones doubled."""
    return '"' + text.replace('"', '""') + '"'


def xml_text(text: str) -> str:
    """Escape `text` for element content and attributes; characters that XML does not allow are dropped."""
    text = re.sub(_NOT_XML, "", text)
    for raw, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&apos;")):
        text = text.replace(raw, escaped)
    return text


def plain_hit(hit: Hit) -> Hit:
    """Return a hit for text: title and context of one line each, passages whose lines end at line feeds alone."""
    document, context = replace(hit.document, title=one_line(hit.document.title)), hit.context
    passage, *passages = (replace(one, text=visible(one.text)) for one in (hit.passage, *hit.passages))
    hit = replace(hit, document=document, passage=passage, passages=tuple(passages))
    return replace(hit, context=context and one_line(context, LONG_CHARS), body=hit.body and visible(hit.body))


def number_lines(text: str, first: int, *, is_exact: bool = False) -> str:
    """Put `N: ` before each line, from `first`; a final break starts no line.

    Separators that would start another line are escaped, unless `is_exact`, for JSON.
    """
    body = text.removesuffix("\n")
    end = text[len(body) :]
    if not is_exact:
        body = visible(f"{body}\n")[:-1] if end else visible(body.removesuffix("\r"))
    lines = (f"{number}: {line}" for number, line in enumerate(body.split("\n"), first))
    return "\n".join(lines) + end


def stretch(text: str, line: int, most: int) -> tuple[int, str]:
    """Return (number of lines before, at most `most` characters around a line, from 1); lines stay whole."""
    if len(text) <= most:
        return 0, text
    found = sum(len(one) + 1 for one in text.split("\n", line)[: max(line - 1, 0)])
    start = max(text.rfind("\n", 0, max(found - most // 2, 0)), 0)
    end = text.rfind("\n", start + 1, start + most)
    return text.count("\n", 0, start), text[start : end if end > start else start + most]


def fence(text: str) -> str:
    """Return a markdown fence that no run of backticks in `text` closes."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    return "`" * (longest + 1)


def describe_engine(description: EngineDescription) -> str:
    """Describe a model: `all-MiniLM-L6-v2 int8 (built-in, cpu)`."""
    return f"{description.model} {description.format} ({description.tier}, {description.provider})"


def relative_time(moment: str | None, now: datetime) -> str:
    """Format an ISO time as `5s ago`, `3m ago`, `2h ago` or `9d ago`; `never` for None."""
    if moment is None:
        return "never"
    seconds = max(0, int((now - parse_time(moment)).total_seconds()))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit} ago"
    return f"{seconds}s ago"


def human_size(n_bytes: int) -> str:
    """Format a size as `812 B`, `1.5 KB`, `2.0 MB` or `1.2 GB`."""
    if n_bytes < 1024:
        return f"{n_bytes} B"
    size, unit = n_bytes / 1024, "KB"
    for larger in ("MB", "GB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"


_CONSTANT = (
    r"^\d+ documents .*need embeddings|^searched by words only: none|^vectors of \d|qmd models pull"
    r"|^(not \w+: )?no \w+ model|^the same text is in|^QMD_\w+ is no variable"
)
"""Warnings that apply to every query until the user or a process changes the index."""


def kind_of_notice(warning: str) -> str | None:
    """Return a warning about the index, its models or copies, without counts; None for one about the request."""
    return re.sub(r"\b\d+(?=[ %])", "", warning) if re.search(_CONSTANT, warning) else None
