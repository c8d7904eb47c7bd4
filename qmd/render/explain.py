"""`--explain`: a sentence on the place of a hit, and its scores as an object and as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from qmd.analysis.scripts import has_unspaced
from qmd.escapes import LONG_CHARS, one_line
from qmd.records import Contribution, Explanation
from qmd.render.drawing import shorten, wrap
from qmd.retrieval.calibration import GOOD
from qmd.retrieval.literal_matches import MAX_WORDS

if TYPE_CHECKING:
    from rich.text import Text

_SOURCES = {"bm25": "fts", "dense": "vec"}
_FOUND_BY = {"bm25": "words", "dense": "meaning"}
_CLAIMS = {
    "name file": "the query is its file name",
    "name title": "the query is its title",
    "name alias": "the query is its alias",
    "name heading": "the query is its heading",
    "date day": "its date is in '{}'",
    "date file time": "its file was written in '{}'",
    "date mention": "it mentions a date in '{}'",
    "literal words": "{1}, as typed in one passage",
}
"""Source and kind of a contribution → its claim about the query and the words as typed."""
_EDGE = ("│ ", "faint")


def explain_object(explanation: Explanation) -> dict[str, object]:
    """Return the explanation with the keys that programs read, newer keys last.

    `topRankBonus` is always 0: fused scores carry no bonus by position.
    """
    return {
        "ftsScores": _scores(explanation, "bm25"),
        "vectorScores": _scores(explanation, "dense"),
        "rrf": {
            "rank": explanation.fused_rank,
            "positionScore": 1 / explanation.fused_rank,
            "weight": 1 if explanation.rerank_score is None else 0.5,
            "baseScore": explanation.fused_score,
            "topRankBonus": 0,
            "totalScore": explanation.fused_score,
            "contributions": [
                {
                    "listIndex": index,
                    "source": _SOURCES.get(one.source, one.source),
                    "queryType": one.kind,
                    "query": one.query,
                    "rank": one.rank,
                    "weight": one.weight,
                    "backendScore": one.score,
                    "rrfContribution": one.contribution,
                }
                for index, one in enumerate(explanation.contributions)
            ],
        },
        "rerankScore": explanation.rerank_score or 0,
        "blendedScore": explanation.blended_score,
        "relevance": explanation.relevance,
    }


def explain_place(explanation: Explanation, number: int) -> str:
    """Return in one sentence why a hit has its place and its relevance; `number` is its place on the page."""
    place, fused_rank = explanation.place, explanation.fused_rank
    head = _ordinal(place) + ("" if number == place else " by relevance")
    if explanation.rerank_score is not None and place != fused_rank:
        head += f" (before reranking {_ordinal(fused_rank)})"
    level, alone = (f"{100 * one:.0f} %" for one in (explanation.relevance, explanation.judged))
    if level != alone:
        level += f" with its neighbours, {alone} alone,"
    dates = [one.query for one in explanation.contributions if one.source == "date"]
    words = {word: part for word, part in explanation.words.items() if word not in dates}
    evidence = _weigh(explanation, words)
    if dates:
        evidence.append((1.0, "its date fits"))
    if any(one.source == "name" for one in explanation.contributions):
        evidence = [(1.0, "of its name")]
    return f"{head}{_argue(_reasons(explanation, words))}; {level}{_argue(evidence)}"


def _weigh(explanation: Explanation, words: Mapping[str, str]) -> list[tuple[float, str]]:
    if not words:
        return []
    missing = [word for word, part in words.items() if not part]
    together = ", close together" if explanation.is_close and len(words) > 1 else ""
    text = f"{_name(missing, words)} missing" if missing else f"{_name(list(words), words)} in it{together}"
    return [(-1.0 if (explanation.judged >= GOOD) is bool(missing) else 0.0, text)]


def _reasons(explanation: Explanation, words: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """Yield (contribution, reason) for each kind of evidence; `words` are those of the query that are no date."""
    parts = [part for part in dict.fromkeys(words.values()) if part]
    where = ", ".join(
        f"{_name([word for word in words if words[word] == part], words)} in its {part}" for part in parts
    )
    typed = where if where and len(explanation.words) <= MAX_WORDS else "the phrase is in it"
    by_source: dict[str, list[Contribution]] = {}
    for one in explanation.contributions:
        by_source.setdefault(one.source, []).append(one)
        if claim := _CLAIMS.get(f"{one.source} {one.kind}"):
            yield one.contribution, claim.format(one.query, typed)
    for source, found in by_source.items():
        if source == "dense" or (source == "bm25" and not ("literal" in by_source and typed == where)):
            yield _rank_reason(source, found, where, explanation.relevance >= GOOD)


def _rank_reason(source: str, found: Sequence[Contribution], where: str, is_good: bool) -> tuple[float, str]:
    weight = sum(one.contribution for one in found)
    rank = min((one.rank for one in found if one.rank is not None), default=0)
    near = {0: "not among the nearest", 1: "nearest"}.get(rank, f"{_ordinal(rank)} nearest")
    if source == "dense" and rank and weight > 0 and is_good:
        return weight, f"the meaning agrees ({near})"
    has_words = source == "bm25" and weight >= 0 and where
    return weight if rank else -1.0, where if has_words else f"it is {near} by {_FOUND_BY[source]}"


def _argue(reasons: Iterable[tuple[float, str]]) -> str:
    """Return ` because …, although …` of (weight, reason), the heaviest first."""
    sides: dict[bool, list[str]] = {True: [], False: []}
    for weight, text in sorted(reasons, key=lambda one: -one[0]):
        sides[weight >= 0].append(text)
    because, although = (" and ".join(filter(None, (", ".join(side[:-1]), *side[-1:]))) for side in sides.values())
    comma = "," if because and although else ""
    return f"{because and f' because {because}'}{comma}{although and f' although {although}'}"


def _name(some: Sequence[str], words: Collection[str]) -> str:
    """Return `both words are`, `'seat' is` or `3 of 5 words are`, for some of the words of a query."""
    noun = "character pairs" if all(map(has_unspaced, words)) else "words"
    if len(some) == len(words):
        return {1: "the word is", 2: f"both {noun} are"}.get(len(words), f"all {len(words)} {noun} are")
    quoted = " and ".join(f"'{word}'" for word in some)
    names = quoted if len(some) <= 2 else f"{len(some)} of {len(words)} {noun}"
    return f"{names} {'is' if len(some) == 1 else 'are'}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return "first" if number == 1 else f"{number}{ending}"


def _scores(explanation: Explanation, source: str) -> list[float]:
    return [one.score for one in explanation.contributions if one.source == source and one.rank is not None]


def explanation_rows(explanation: Explanation, number: int, width: int, *, full: bool) -> Iterator[Text]:
    """Yield the sentence on a hit and, with `full`, a row for each list and one for the combined score."""
    from rich.text import Text

    sentence = Text(one_line(explain_place(explanation, number), LONG_CHARS), "note")
    yield from (Text.assemble(_EDGE, row) for row in wrap(sentence, width - len(_EDGE[0])))
    if not full:
        return
    for one in explanation.contributions:
        yield shorten(Text.assemble(_EDGE, (f"{_found_in(one)}  {one_line(one.query)}", "faint")), width)
    steps = [f"fused {explanation.fused_score:.2f}, rank {explanation.fused_rank}"]
    if explanation.rerank_score is not None:
        steps.append(f"reranker {explanation.rerank_score:.2f} → {explanation.blended_score:.2f}")
    steps.append(f"relevance {explanation.relevance:.0%}")
    yield shorten(Text.assemble(_EDGE, " · ".join(steps)), width)


def _found_in(one: Contribution) -> str:
    kind = f" ({one.kind})" if one.kind != "original" else ""
    where = f"rank {one.rank:<4} score {one.score:6.2f}" if one.rank is not None else "not in this list"
    if one.source not in _FOUND_BY:
        where, kind = one.kind, ""
    return f"{_FOUND_BY.get(one.source, one.source) + kind:14}  {where:22}  {one.contribution:+6.2f}"
