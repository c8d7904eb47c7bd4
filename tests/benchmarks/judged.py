"""Judged queries on disk: BEIR folders, TREC qrels and run files."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from qmd.errors import NotFoundError, QmdError, UsageError

Qrels = Mapping[str, Mapping[str, float]]
"""Query id → document name → grade; above 0 is relevant."""

Run = Mapping[str, Sequence[str]]
"""Query id → document names, best first."""

_SYNTAX = re.compile(
    r"\b(tag|path|collection|after|since|before|on|title|sort|lex|vec|hyde|intent|expand):", re.IGNORECASE
)
_CORPUS_NAMES = ("corpus.jsonl", "corpus.jsonl.gz")


class JudgedQueries(Struct, frozen=True):
    """Queries by id with their judgements; queries without a judgement are skipped."""

    queries: Mapping[str, str]
    qrels: Qrels


class CorpusText(Struct, frozen=True):
    """A document of a BEIR corpus."""

    id: str
    title: str
    text: str


def read_beir(folder: Path) -> JudgedQueries:
    """Read `queries.jsonl` or `queries.tsv`, and `qrels.tsv` (BEIR's `qrels/test.tsv`, TREC's `qrels.txt`) of a folder.

    Raises:
        NotFoundError: A file is missing.
        UsageError: A line cannot be read.
    """
    grades = read_qrels(_first_of(folder, ("qrels.tsv", "qrels/test.tsv", "qrels.txt")))
    queries = read_queries(_first_of(folder, ("queries.jsonl", "queries.jsonl.gz", "queries.tsv")))
    return JudgedQueries({name: text for name, text in queries.items() if name in grades}, grades)


def read_queries(path: Path) -> dict[str, str]:
    """Read query texts by id: JSON lines (`id` or `_id`, `text` or `query`), or two columns separated by a tab.

    Raises:
        NotFoundError: No such file.
        UsageError: A line cannot be read.
    """
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return {
            _field(path, number, row, ("id", "_id")): plain_text(_field(path, number, row, ("text", "query")))
            for number, row in _json_lines(path)
        }
    texts: dict[str, str] = {}
    for number, line in enumerate(_open_text(path), start=1):
        name, tab, text = line.rstrip("\r\n").partition("\t")
        if not tab and line.strip():
            raise UsageError(f"line {number} of '{path}' has no tab between the query's id and its text")
        if tab:
            texts[name.strip()] = plain_text(text)
    return texts


def plain_text(text: str) -> str:
    """Return a judged query on one line, none of it read as a filter or as a line of a query document."""
    return " ".join(_SYNTAX.sub(r"\1 ", text).split())


def read_corpus(folder: Path) -> Iterator[CorpusText]:
    """Yield documents of `corpus.jsonl` or `corpus.jsonl.gz`, in file order. Raises as `read_beir` does."""
    path = _first_of(folder, _CORPUS_NAMES)
    for number, row in _json_lines(path):
        yield CorpusText(
            _field(path, number, row, ("id", "_id")), str(row.get("title") or ""), _field(path, number, row, ("text",))
        )


def read_qrels(path: Path) -> dict[str, dict[str, float]]:
    """Read judgements in TREC's four columns (query, iteration, document, grade) or three, blank or tab separated.

    A header line is skipped.

    Raises:
        NotFoundError: No such file.
        UsageError: A line has other columns, or a grade that is no number.
    """
    qrels: dict[str, dict[str, float]] = {}
    for number, line in enumerate(_open_text(path), start=1):
        fields = [field.strip() for field in line.split("\t" if "\t" in line else None)]
        if not any(fields):
            continue
        if len(fields) not in (3, 4):
            raise UsageError(f"line {number} of '{path}' has {len(fields)} columns, expected 3 or 4")
        try:
            grade = float(fields[-1])
        except ValueError:
            if number == 1:
                continue
            raise UsageError(f"line {number} of '{path}' has the grade '{fields[-1]}', expected a number") from None
        qrels.setdefault(fields[0], {})[fields[-2]] = grade
    return qrels


def read_run(path: Path) -> dict[str, list[str]]:
    """Read a TREC run (query, Q0, document, rank, score, tag); order is by score, ties by rank.

    Raises:
        NotFoundError: No such file.
        UsageError: A line cannot be read.
    """
    rows: dict[str, list[tuple[float, int, str]]] = {}
    for number, line in enumerate(_open_text(path), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            query, _, document, rank, score = fields[:5]
            rows.setdefault(query, []).append((-float(score), int(rank), document))
        except ValueError:
            raise UsageError(f"line {number} of '{path}' is not a line of a TREC run: '{line.strip()}'") from None
    return {query: [document for _, _, document in sorted(entries)] for query, entries in rows.items()}


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a TREC run; scores are falling ranks, and `run_name` names queries and documents."""
    lines = [
        f"{run_name(query)} Q0 {run_name(name)} {rank} {len(names) - rank + 1} {tag}"
        for query, names in run.items()
        for rank, name in enumerate(names, start=1)
    ]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def run_name(name: str) -> str:
    """Return a name for a run, whose columns are separated by white space: that is percent-encoded."""
    return "".join(quote(character) if character.isspace() else character for character in name)


def _first_of(folder: Path, names: Sequence[str]) -> Path:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise NotFoundError(f"'{folder}' has no {' or '.join(names)}", hint="see bench_quality.py")


def _open_text(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            yield from lines
    except FileNotFoundError as exc:
        raise NotFoundError(f"no file '{path}'") from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise QmdError(f"cannot read '{path}': {exc}") from exc


def _json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(_open_text(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as exc:
            raise UsageError(f"line {number} of '{path}' is not JSON: {exc}") from exc
        if not isinstance(row, dict):
            raise UsageError(f"line {number} of '{path}' is not a JSON object")
        yield number, row


def _field(path: Path, number: int, row: Mapping[str, object], names: Sequence[str]) -> str:
    for name in names:
        if name in row:
            return str(row[name])
    raise UsageError(f"line {number} of '{path}' has no '{names[0]}'")
