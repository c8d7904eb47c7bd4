"""Answers that hold a budget of tokens: which results are in it, how much of the last one, and how to go on.

Filling is deterministic: rank order, each text once, the last result cut at a line. What is counted is the finished
answer in the form in which it is sent, so the budget holds whatever surrounds the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.paging import cursor_after
from qmd.app.records import LEAST_TOKENS, DocumentText, DocumentTexts, SkippedDocument
from qmd.errors import UsageError
from qmd.records import Budget, Hit, Passage, SearchResponse

MARK = "[…]"
"""Ends what was cut."""

_LEAST_SHOWN = 40
"""Tokens of a text that are worth showing of it."""

_MOST_CHARACTERS = 16
"""Of a token on average: what is longer is cut before it is counted."""

_LEAST_OF_DOCUMENT, _NAMED = 100, 5
"""Tokens for one of several documents with what stands around it, and documents that are named where there are more."""

Measure = Callable[[SearchResponse], int]
"""Tokens of the finished answer that shows a response."""


def check_tokens(most: int, name: str) -> int:
    """A budget that somebody asks for by `name`.

    Raises:
        UsageError: It has no room for an address.
    """
    if most < LEAST_TOKENS:
        raise UsageError(f"{name}: expected at least {LEAST_TOKENS}, not {most}")
    return most


def fit_hits(response: SearchResponse, most: int, measure: Measure) -> SearchResponse:
    """As many results as have room in `most` tokens, the last one cut; the first is never more than its budget.

    `budget` of what is returned says what was used and is left. Where no result has room, there is none.
    """
    hits = _each_once([_cut_hit(hit, most * _MOST_CHARACTERS) for hit in response.hits])

    def answer(shown: Sequence[Hit]) -> SearchResponse:
        left = len(hits) - len(shown)
        cursor = cursor_after((*response.before, *shown)) if left else None
        return replace(
            response,
            hits=tuple(shown),
            budget=Budget(most, most, left, cursor, None if shown or not left else hits[0].document.docid),
        )

    if response.warnings and measure(answer(())) > most:
        response = replace(response, warnings=())
    n_whole = _largest(len(hits), lambda n: measure(answer(hits[:n])) <= most)
    shown = hits[:n_whole]
    if n_whole < len(hits):
        shown = _with_part(shown, hits[n_whole], most, lambda some: measure(answer(some)))
    fitted = answer(shown)
    assert fitted.budget is not None
    return replace(fitted, budget=replace(fitted.budget, used=measure(fitted)))


def measure_texts(response: SearchResponse) -> int:
    """Tokens of what a Python caller is likely to pass on: each address with its texts."""
    texts = (
        (
            hit.document.docid,
            hit.document.uri,
            hit.body or "\n".join(one.text for one in hit.all_passages),
        )
        for hit in response.hits
    )
    return count_tokens("\n".join("\n".join(one) for one in texts))


def _with_part(shown: list[Hit], hit: Hit, most: int, measure: Callable[[list[Hit]], int]) -> list[Hit]:
    """The results with what has room of one more, if that is worth showing; the first has at least its address."""
    room = most - measure([*shown, _cut_hit(hit, 0)])
    length = max(len(hit.body or ""), len(hit.passage.text), sum(len(one.text) for one in hit.passages))
    texts = "".join(one.text for one in hit.passages) or hit.passage.text
    kept = _largest(length, lambda n: count_tokens((hit.body or texts)[:n]) <= room)
    while kept and measure([*shown, _cut_hit(hit, kept)]) > most:
        kept = kept * 9 // 10
    if count_tokens((hit.body or texts)[:kept]) >= _LEAST_SHOWN:
        return [*shown, _cut_hit(hit, kept)]
    return shown if shown or room < 0 else [_cut_hit(hit, 0)]


def _cut_hit(hit: Hit, most: int) -> Hit:
    """A hit with so many characters of its texts."""
    passages: list[Passage] = []
    room = most
    for one in hit.passages:
        if room > 0 or not passages:
            passages.append(_cut_passage(one, room))
        room -= len(one.text)
    body = hit.body if hit.body is None else cut_text(hit.body, most)
    return replace(hit, passage=_cut_passage(hit.passage, most), passages=tuple(passages), body=body)


def _cut_passage(passage: Passage, most: int) -> Passage:
    if len(passage.text) <= most:
        return passage
    text = cut_text(passage.text, max(most, 0))
    last = min(passage.end_line, passage.start_line + text.count("\n"))
    after = passage.lines_after + passage.end_line - last
    return replace(passage, text=text, end_line=last, line=min(passage.line, last), lines_after=after)


def _each_once(hits: Sequence[Hit]) -> list[Hit]:
    """The hits without passages that one before them has, word for word."""
    known: set[str] = set()
    kept = []
    for hit in hits:
        passages = tuple(one for one in hit.passages if one.text.strip() not in known)
        known.update(one.text.strip() for one in hit.passages)
        kept.append(replace(hit, passages=passages or hit.passages[:1]))
    return kept


def cut_text(text: str, most: int) -> str:
    """The lines of `text` that have room in so many characters, of a long one its words, and the mark."""
    if len(text) <= most:
        return text
    end = max(text.rfind("\n", most // 2, most), 0) or max(text.rfind(" ", most // 2, most), 0) or most
    return f"{text[:end].rstrip()} {MARK}".lstrip()


def fit_documents(found: DocumentTexts, most: int, show: Callable[[DocumentTexts], str], more: str) -> DocumentTexts:
    """As much of each document as has room, each with a fair share; `problems` names those that have none.

    Args:
        found: What was read.
        most: Tokens.
        show: The finished answer.
        more: How to read on, with `{}` for a docid and for the next line.
    """
    if sum(len(one.text) for one in found.documents) <= most * _MOST_CHARACTERS and count_tokens(show(found)) <= most:
        return found
    n_shown = max(1, most // _LEAST_OF_DOCUMENT - 1)
    left = found.entries[n_shown:]
    named = ", ".join(f"{one.document.uri} ({one.document.size:,} characters)" for one in left[:_NAMED])
    others = f" and {len(left) - _NAMED:,} others" if len(left) > _NAMED else ""
    problems = (*found.problems, *([f"no room in {most:,} tokens for {named}{others}"] if left else ()))
    entries, room = found.entries[:n_shown], most
    while room > 0:
        shares = fair_shares([_size_of(one, most, show) for one in entries], room)
        kept = [_cut_document(*one, show, more) for one in zip(entries, shares, strict=True)]
        fitted = replace(found, entries=tuple(kept), problems=problems)
        if count_tokens(show(fitted)) <= most:
            return fitted
        room = room * 9 // 10
    return replace(found, entries=(), problems=(f"no room in {most:,} tokens: give more",))


def _size_of(entry: DocumentText | SkippedDocument, most: int, show: Callable[[DocumentTexts], str]) -> int:
    if isinstance(entry, DocumentText):
        entry = replace(entry, text=entry.text[: most * _MOST_CHARACTERS])
    return count_tokens(show(DocumentTexts((entry,))))


def _cut_document(
    entry: DocumentText | SkippedDocument, share: int, show: Callable[[DocumentTexts], str], more: str
) -> DocumentText | SkippedDocument:
    """A document that costs its share at most."""
    if not isinstance(entry, DocumentText) or _size_of(entry, share, show) <= share:
        return entry

    def keep(n_characters: int) -> DocumentText:
        end = max(entry.text.rfind("\n", 0, n_characters), 0)
        n_lines = entry.text.count("\n", 0, end) + 1 if end else 0
        n_left = len(entry.text.splitlines()) - n_lines
        # Of a line that is longer than its share the beginning is all that a budget can show.
        head = entry.text[:end] if end else entry.text[:n_characters].rstrip()
        next_line = more.format(entry.document.docid, entry.first_line + n_lines)
        mark = f"[… {n_left} more line{'' if n_left == 1 else 's'}: {next_line}]"
        return replace(entry, text=f"{head}\n{mark}", is_whole=False)

    room = share - _size_of(keep(0), share, show)
    most = min(len(entry.text), share * _MOST_CHARACTERS)
    return keep(_largest(most, lambda n: count_tokens(entry.text[:n]) <= room))


def fair_shares(sizes: Sequence[int], most: int) -> list[int]:
    """What each of several texts gets of `most` tokens: what small ones leave goes to the larger ones."""
    shares, left = [0] * len(sizes), most
    for rank, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[place] = min(sizes[place], left // (len(sizes) - rank))
        left -= shares[place]
    return shares


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where smaller ones fit if it does; 0 where none does."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        low, most = (middle, most) if fits(middle) else (low, middle - 1)
    return low
