"""Answers within a budget of tokens: their items, the size of each, and how to continue.

`fill` makes every such choice. It is deterministic and counts the finished answer in the form in which it is sent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar

from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.paging import cursor_after
from qmd.app.records import LEAST_TOKENS, DocumentText, DocumentTexts, SkippedDocument
from qmd.errors import UsageError
from qmd.escapes import message_line
from qmd.records import Budget, Hit, Passage, SearchResponse

MARK = "[…]"
"""Mark at the end of a cut text."""

_LEAST_SHOWN = 40
"""Fewest tokens of a text that are worth a row."""

_MOST_CHARACTERS = 16
"""Characters of a token, more than average: longer texts are cut before they are counted."""

_LEAST_OF_DOCUMENT, _NAMED = 100, 5
"""Fewest tokens for one of several documents with its frame, and most omitted documents that are named."""

_Size = TypeVar("_Size")

Measure = Callable[[SearchResponse], int]
"""Tokens of the finished answer that shows a response."""


def check_tokens(most: int, name: str) -> int:
    """Return the budget of a request with the name `name`.

    Raises:
        UsageError: It is too small for an address.
    """
    if most < LEAST_TOKENS:
        raise UsageError(f"{name}: expected at least {LEAST_TOKENS}, not {most}")
    return most


def fill(
    steps: Callable[[Mapping[int, _Size]], Iterable[tuple[int, Sequence[_Size]]]],
    budget: int,
    measure: Callable[[int, _Size], int],
) -> dict[int, _Size]:
    """Return the sizes of items that grow one after the other, each as far as the budget allows.

    Args:
        steps: Gets the sizes so far, which change; yields (item, larger sizes, ascending), the best step first.
        budget: Tokens.
        measure: Returns the tokens of an item of a size.
    """
    measure = cache(measure)
    sizes: dict[int, _Size] = {}
    for item, offered in steps(sizes):
        left = budget + (measure(item, sizes[item]) if item in sizes else 0)
        if n_fitting := bisect_right(offered, left, key=partial(measure, item)):
            sizes[item] = offered[n_fitting - 1]
            budget = left - measure(item, sizes[item])
    return sizes


def fit_hits(response: SearchResponse, most: int, measure: Measure) -> SearchResponse:
    """Keep as many results as fit in `most` tokens, the last one cut; the first never exceeds the budget.

    `budget` of the result has the used tokens and the number of results left. If no result fits, there is none.
    """
    limit = most * _MOST_CHARACTERS
    hits = _each_once([_cut_hit(hit, limit) for hit in response.hits])

    def answer(n_shown: int, n_characters: int) -> SearchResponse:
        shown = [_cut_hit(hit, n_characters) if n == n_shown else hit for n, hit in enumerate(hits[:n_shown], 1)]
        left = len(hits) - n_shown
        cursor = cursor_after((*response.before, *shown)) if left else None
        following = None if shown or not left else hits[0].document.docid
        return replace(response, hits=tuple(shown), budget=Budget(most, most, left, cursor, following))

    def steps(sizes: Mapping[int, tuple[int, int]]) -> Iterator[tuple[int, Sequence[tuple[int, int]]]]:
        yield 0, [(n, limit) for n in range(1, len(hits) + 1)]
        n_whole, _ = sizes.get(0, (0, limit))
        for hit in hits[n_whole : n_whole + 1]:
            yield 0, [(n_whole + 1, n) for n in (*([] if n_whole else [0]), *_cut_sizes(hit))]

    if response.warnings and measure(answer(0, limit)) > most:
        response = replace(response, warnings=())
    fitted = answer(*fill(steps, most, lambda _, size: measure(answer(*size))).get(0, (0, limit)))
    assert fitted.budget is not None
    return replace(fitted, budget=replace(fitted.budget, used=measure(fitted)))


def measure_texts(response: SearchResponse) -> int:
    """Count the tokens that a Python caller is likely to pass on: each address with its texts."""
    texts = [(one.document, one.body or "\n".join(part.text for part in one.all_passages)) for one in response.hits]
    texts += [(one.document, one.text) for hit in response.hits for one in (hit.mention, hit.continues) if one]
    return count_tokens("\n".join(f"{document.docid}\n{document.uri}\n{text}" for document, text in texts))


def _cut_sizes(hit: Hit) -> Sequence[int]:
    """Return the numbers of characters to which a hit may be cut: those that show enough to be worth a row."""
    length = max(len(hit.body or ""), len(hit.passage.text), sum(len(one.text) for one in hit.passages))
    text = hit.body or "".join(one.text for one in hit.passages) or hit.passage.text
    return range(bisect_left(range(length), _LEAST_SHOWN, key=lambda n: count_tokens(cut_text(text, n))), length)


def _cut_hit(hit: Hit, most: int) -> Hit:
    """Cut the texts of a hit to a number of characters; with none, it names no next session."""
    passages: list[Passage] = []
    left = most
    for one in hit.passages:
        if left > 0 or not passages:
            passages.append(_cut_passage(one, left))
        left -= len(one.text)
    body = hit.body if hit.body is None else cut_text(hit.body, most)
    passage, continues = _cut_passage(hit.passage, most), hit.continues if most else None
    return replace(hit, passage=passage, passages=tuple(passages), body=body, continues=continues)


def _cut_passage(passage: Passage, most: int) -> Passage:
    if len(passage.text) <= most:
        return passage
    text = cut_text(passage.text, max(most, 0))
    last = min(passage.end_line, passage.start_line + text.count("\n"))
    after = passage.lines_after + passage.end_line - last
    return replace(passage, text=text, end_line=last, line=min(passage.line, last), lines_after=after)


def _each_once(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits without passages that an earlier hit has, word for word."""
    known: set[str] = set()
    kept = []
    for hit in hits:
        passages = tuple(one for one in hit.passages if one.text.strip() not in known)
        known.update(one.text.strip() for one in hit.passages)
        kept.append(replace(hit, passages=passages or hit.passages[:1]))
    return kept


def cut_text(text: str, most: int) -> str:
    """Return the lines of `text` that fit in a number of characters, words of a long line, and the mark."""
    if len(text) <= most:
        return text
    end = max(text.rfind("\n", most // 2, most), 0) or max(text.rfind(" ", most // 2, most), 0) or most
    # Blank lines at the start stay, or those below would be counted from another one.
    head = text[:end].rstrip()
    return f"{head} {MARK}" if head else MARK


def fit_documents(found: DocumentTexts, most: int, show: Callable[[DocumentTexts], str], more: str) -> DocumentTexts:
    """Keep as much of each document as fits, each with a fair share; `problems` names those that do not fit.

    Args:
        found: The documents that were read.
        most: Tokens.
        show: Returns the finished answer.
        more: The command that continues, with `{}` for a docid and for the next line.
    """
    limit = most * _MOST_CHARACTERS
    if sum(len(one.text) for one in found.documents) <= limit and count_tokens(show(found)) <= most:
        return found
    n_shown = max(1, most // _LEAST_OF_DOCUMENT - 1)
    left = found.entries[n_shown:]
    named = ", ".join(f"{one.document.uri} ({one.document.size:,} characters)" for one in left[:_NAMED])
    others = f" and {len(left) - _NAMED:,} others" if len(left) > _NAMED else ""
    unshown = [message_line(f"{most:,} tokens are too few for {named}{others}")] if left else []
    problems = (*found.problems, *unshown)
    lengths = [len(one.text) if isinstance(one, DocumentText) else 0 for one in found.entries[:n_shown]]

    def answer(n_characters: int) -> DocumentTexts:
        shares = fair_shares(lengths, n_characters)
        kept = (_cut_document(entry, share, more) for entry, share in zip(found.entries, shares, strict=False))
        return replace(found, entries=tuple(kept), problems=problems)

    characters = range(min(sum(lengths), limit) + 1)
    if sizes := fill(lambda _: [(0, characters)], most, lambda _, size: count_tokens(show(answer(size)))):
        return answer(sizes[0])
    return replace(found, entries=(), problems=(f"nothing fits in {most:,} tokens: give more",))


def _cut_document(
    entry: DocumentText | SkippedDocument, n_characters: int, more: str
) -> DocumentText | SkippedDocument:
    """Cut a document at a line, and add the command that continues."""
    if not isinstance(entry, DocumentText) or len(entry.text) <= n_characters:
        return entry
    end = max(entry.text.rfind("\n", 0, n_characters), 0)
    n_lines = entry.text.count("\n", 0, end) + 1 if end else 0
    n_left = entry.text.count("\n") + (not entry.text.endswith("\n")) - n_lines
    # A budget shows only the beginning of a line that is longer than its share.
    head = entry.text[:end] if end else entry.text[:n_characters].rstrip()
    next_line = more.format(entry.document.docid, entry.first_line + n_lines)
    mark = f"\n[… {n_left} more line{'' if n_left == 1 else 's'}: {next_line}]"
    return replace(entry, text=head + mark, is_whole=False, mark=mark)


def fair_shares(sizes: Sequence[int], most: int) -> list[int]:
    """Divide `most` characters among several texts: larger texts get what smaller ones leave."""
    shares, left = [0] * len(sizes), most
    for rank, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        shares[place] = min(sizes[place], left // (len(sizes) - rank))
        left -= shares[place]
    return shares
