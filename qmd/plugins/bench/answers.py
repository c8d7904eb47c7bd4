"""What a person sees of a search: where the right file stands, whether its passage answers, what the list is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import DecodeError, Struct, json

from qmd.analysis.scripts import normalize
from qmd.errors import NotFoundError, UsageError
from qmd.plugins.bench.collections import JudgedQueries
from qmd.plugins.bench.compare import Comparison, compare_runs
from qmd.plugins.bench.metrics import average
from qmd.records import SearchResponse, Verdict

SHOWN = 10
"""Hits that a person is shown; a passage further down answers nobody."""

COMPARED = ("success@1", "success@3", "passage_holds", "verdict_right")
"""Metrics of `answer_metrics` that are compared between two runs."""


class Answer(Struct, frozen=True):
    """What one search showed of what was expected.

    Attributes:
        kind: Kind of the query.
        is_answerable: Whether any file is expected.
        rank: Of the first expected file among the hits asked for; None where none of them is.
        passage_holds: Whether that file is among the first `SHOWN` and its passage holds an expected text; None where
            no text is expected.
        verdict: What the list was called.
    """

    kind: str
    is_answerable: bool
    rank: int | None
    passage_holds: bool | None
    verdict: Verdict

    @property
    def is_kept(self) -> bool:
        """Whether the list was taken for an answer."""
        return self.verdict != "none"


class AnswerComparison(Struct, frozen=True):
    """Metric → comparison with an earlier run: over all queries, and by kind."""

    overall: Mapping[str, Comparison]
    kinds: Mapping[str, Mapping[str, Comparison]]


def judge_answer(judged: JudgedQueries, query_id: str, names: Sequence[str], response: SearchResponse) -> Answer:
    """What `response` shows of what a query expects; `names` are its hits as the judgements call them."""
    grades = judged.qrels.get(query_id, {})
    texts = judged.expected_texts.get(query_id, ())
    rank = next((rank for rank, name in enumerate(names, start=1) if grades.get(name, 0.0) > 0), None)
    is_shown = rank is not None and rank <= SHOWN
    passage = response.hits[rank - 1].passage.text if rank is not None and is_shown else ""
    return Answer(
        kind=judged.kinds[query_id],
        is_answerable=any(grade > 0 for grade in grades.values()),
        rank=rank,
        passage_holds=holds_any(passage, texts) if texts else None,
        verdict=response.verdict,
    )


def holds_any(passage: str, texts: Sequence[str]) -> bool:
    """Whether a passage holds one of some texts; case, line breaks and the form of characters do not matter."""
    inside = folded(passage)
    return any(folded(text) in inside for text in texts)


def folded(text: str) -> str:
    """`text` on one line, with nothing left of its case and of the form of its characters."""
    return " ".join(normalize(text).casefold().split())


def answer_metrics(answers: Mapping[str, Answer]) -> dict[str, dict[str, float]]:
    """Metric → query id → 0 or 1, each over the queries that it can be asked of.

    Success is that an expected file is among the first k. A verdict is right where an answerable query is kept (called
    anything but `none`) or an unanswerable one refused.
    """
    answerable = {name: answer for name, answer in answers.items() if answer.is_answerable}
    unanswerable = {name: answer for name, answer in answers.items() if not answer.is_answerable}
    return {
        **{f"success@{k}": {name: _success(answer, k) for name, answer in answerable.items()} for k in (1, 3, 10)},
        "passage_holds": {n: float(a.passage_holds) for n, a in answers.items() if a.passage_holds is not None},
        **{word: {n: float(a.verdict == word) for n, a in answers.items()} for word in ("good", "weak", "none")},
        "kept": {name: float(answer.is_kept) for name, answer in answerable.items()},
        "refused": {name: float(not answer.is_kept) for name, answer in unanswerable.items()},
        "verdict_right": {name: float(a.is_kept == a.is_answerable) for name, a in answers.items()},
    }


def summarise_answers(answers: Mapping[str, Answer]) -> dict[str, float | None]:
    """Number of cases and the mean of each of `answer_metrics`; None where it can be asked of no query."""
    means = {
        name: average(list(values.values())) if values else None for name, values in answer_metrics(answers).items()
    }
    return {"cases": len(answers), **means}


def by_kind(answers: Mapping[str, Answer]) -> dict[str, dict[str, Answer]]:
    """Answers by the kind of their query, in order of first appearance."""
    kinds: dict[str, dict[str, Answer]] = {}
    for name, answer in answers.items():
        kinds.setdefault(answer.kind, {})[name] = answer
    return kinds


def compare_answers(old: Mapping[str, Answer], new: Mapping[str, Answer]) -> AnswerComparison:
    """Compare two runs query by query; kinds are those of `new`, and a metric that no query shares is left out.

    Raises:
        ValueError: The two share no query.
    """
    if not old.keys() & new.keys():
        raise ValueError("the runs share no query")
    kinds = {kind: _compared(old, answers) for kind, answers in by_kind(new).items()}
    return AnswerComparison(_compared(old, new), {kind: metrics for kind, metrics in kinds.items() if metrics})


def answers_path(run: Path) -> Path:
    """Where the answers of a run are kept: beside it."""
    return run.with_suffix(".answers.json")


def write_answers(path: Path, answers: Mapping[str, Answer]) -> None:
    """Keep answers as JSON, for `read_answers`."""
    path.write_bytes(json.format(json.encode(answers), indent=1) + b"\n")


def read_answers(path: Path) -> dict[str, Answer]:
    """Read answers by query id.

    Raises:
        NotFoundError: No such file.
        UsageError: Not what `write_answers` writes.
    """
    try:
        return json.decode(path.read_bytes(), type=dict[str, Answer])
    except FileNotFoundError as exc:
        raise NotFoundError(f"no file '{path}'") from exc
    except (OSError, DecodeError) as exc:
        raise UsageError(f"cannot read the answers '{path}': {exc}", "qmd bench FIXTURE --save-run DIR") from exc


def _compared(old: Mapping[str, Answer], new: Mapping[str, Answer]) -> dict[str, Comparison]:
    before, now = answer_metrics(old), answer_metrics(new)
    return {name: compare_runs(before[name], now[name]) for name in COMPARED if before[name].keys() & now[name].keys()}


def _success(answer: Answer, k: int) -> float:
    return float(answer.rank is not None and answer.rank <= k)
