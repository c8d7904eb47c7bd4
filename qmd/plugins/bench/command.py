"""`bench`: how well, and how fast, this index answers a fixture or finds notes by their names."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Collections, Index, Json, NoGpu, positive_number
from qmd.cli.output import out, warn
from qmd.errors import EXIT_FAILURE, EXIT_OK, ModelError, NotFoundError, UsageError, refuse_unknown
from qmd.records import Scope
from qmd.times import time_text, utc_now

if TYPE_CHECKING:
    from qmd.inference.base import Engines
    from qmd.inference.records import Role
    from qmd.plugins.bench.fixture import Case, Fixture
    from qmd.plugins.bench.running import Report
    from qmd.store.base import IndexReader

_ALL = 1_000_000

Target = Annotated[list[str] | None, Argument(help="A fixture.")]
Names = Annotated[bool, Option("--names", help="Test with the names and aliases of N notes [default: all].")]
Backends = Annotated[
    str | None, Option("--backends", metavar="LIST", help="Any of bm25, vector, hybrid, full, separated by commas.")
]
Most = Annotated[str | None, Option("-n", "--n", metavar="N", help="Ask at most N queries, evenly spread.")]


def bench(
    invocation: Invocation,
    target: Target = None,
    names: Names = False,
    collection: Collections = None,
    backends: Backends = None,
    n: Most = None,
    json: Json = False,
    no_gpu: NoGpu = False,
    index: Index = None,
) -> int:
    """Measure the quality and speed of searching."""
    from qmd.plugins.bench.fixture import read_fixture

    words = list(target or ())
    n_names = words.pop(0) if names and words and words[0].isdecimal() else None
    if len(words) + names != 1:
        raise invocation.missing_argument()
    chosen = _read_backends(backends)
    most, limit = positive_number(n, "-n", _ALL), positive_number(n_names, "--names", _ALL)
    fixture = read_fixture(Path(words[0])) if words else None
    opened = invocation.open(invocation.locate(index), allow_gpu=not no_gpu)
    with opened, opened.engines(_roles(chosen)) as engines, opened.reader() as reader:
        for note in engines.notes:
            warn(note)
        scope = _scope(reader, collection or ([fixture.collection] if fixture and fixture.collection else []))
        cases = _thinned(_cases(reader, scope, fixture, limit), most)
        usable, unavailable = _usable(reader, engines, chosen, is_required=backends is not None)
        with invocation.progress("Searching") as progress:
            reports = _search(reader, engines, scope, cases, usable, progress.update, is_fixture=bool(words))
    fixture_name = Path(words[0]).name if words else None
    out(_as_json(fixture_name, cases, reports, unavailable) if json else _as_text(fixture_name, cases, reports))
    return _status(reports, is_fixture=bool(words))


def _cases(reader: IndexReader, scope: Scope, fixture: Fixture | None, limit: int) -> Mapping[str, Case]:
    """Those of a fixture, each that cannot be met named; without one at most so many names of notes."""
    from qmd.plugins.bench.fixture import cases_of_names, impossible_cases

    if fixture is None:
        return cases_of_names(reader, scope, limit)
    for line in impossible_cases(reader, scope, fixture.cases):
        warn(line)
    return fixture.cases


def _search(
    reader: IndexReader,
    engines: Engines,
    scope: Scope,
    cases: Mapping[str, Case],
    backends: Sequence[str],
    on_progress: Callable[[int, int], None],
    *,
    is_fixture: bool,
) -> list[Report]:
    """Every case with every backend; files of a fixture are called by their addresses."""
    from qmd.plugins.bench.fixture import path_in_collection
    from qmd.plugins.bench.running import run_backend

    number, total = count(1), len(cases) * len(backends)
    name_of = (lambda document: document.uri) if is_fixture else path_in_collection

    def show() -> None:
        on_progress(next(number), total)

    return [run_backend(one, reader, engines, cases, scope, name_of, show) for one in backends]


def _status(reports: Sequence[Report], *, is_fixture: bool) -> int:
    """The exit status, with a warning of what looks wrong."""
    scores = [answer.score for report in reports for answer in report.answers.values() if answer.n_expected]
    if is_fixture and scores and not any(score.hits_at_k for score in scores):
        warn("no expected file was found by any backend: are its names those of 'qmd ls'?")
    failures = sum(len(report.failures) for report in reports)
    if failures:
        warn(f"{failures} searches failed and are left out of the means")
    return EXIT_FAILURE if failures or not reports else EXIT_OK


def _read_backends(text: str | None) -> tuple[str, ...]:
    from qmd.plugins.bench.running import BACKENDS

    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        if name not in BACKENDS:
            raise UsageError(f"unknown backend '{name}'", f"known: {', '.join(BACKENDS)}")
    return names or tuple(BACKENDS)


def _roles(backends: Sequence[str]) -> frozenset[Role]:
    if {"full", "hybrid"} & set(backends):
        return frozenset({"embed", "rerank", "expand"})
    return frozenset({"embed"}) if "vector" in backends else frozenset()


def _usable(
    reader: IndexReader, engines: Engines, backends: Sequence[str], *, is_required: bool
) -> tuple[list[str], dict[str, str]]:
    """The backends that can run, and why others cannot.

    Raises:
        ModelError: One cannot, and it is required.
    """
    from qmd.plugins.bench.running import require_models

    usable: list[str] = []
    unavailable: dict[str, str] = {}
    for backend in backends:
        try:
            require_models(reader, engines, backend)
        except ModelError as exc:
            if is_required:
                raise
            unavailable[backend] = exc.message
            warn(f"{exc.message}: it is left out; {exc.hint}")
        else:
            usable.append(backend)
    return usable, unavailable


def _scope(reader: IndexReader, collections: Sequence[str]) -> Scope:
    """What is asked; also collections that a search skips by default, for a benchmark says what it is about.

    Raises:
        NotFoundError: There is no such collection, or no document in it.
    """
    if not reader.count_documents():
        raise NotFoundError("nothing is indexed", "run: qmd index .")
    refuse_unknown(collections, (one.name for one in reader.collections()))
    scope = Scope(collections=tuple(collections)) if collections else Scope()
    if not reader.count_documents(scope):
        raise NotFoundError(f"collection '{collections[0]}' holds no document", "qmd update")
    return scope


def _thinned(cases: Mapping[str, Case], most: int) -> Mapping[str, Case]:
    """At most so many of the cases, evenly spread."""
    names = list(cases)
    if most >= len(names):
        return cases
    return {name: cases[name] for name in (names[number * len(names) // most] for number in range(most))}


def _as_text(fixture_name: str | None, cases: Mapping[str, Case], reports: Sequence[Report]) -> str:
    from qmd.plugins.bench.report import render_fixture, render_reports

    if fixture_name is None:
        return f"names: {len(cases)} queries\n\n{render_reports(reports)}"
    return render_fixture(cases, reports) + "\n" + render_reports(reports)


def _as_json(
    fixture_name: str | None, cases: Mapping[str, Case], reports: Sequence[Report], unavailable: Mapping[str, str]
) -> str:
    from qmd.plugins.bench.report import fixture_json, names_json, reports_json

    shown: dict[str, object] = {"timestamp": time_text(utc_now(), "seconds")}
    if fixture_name is None:
        shown |= {"name": "names", "queries": len(cases), "backends": reports_json(reports)}
        shown |= {"results": names_json(cases, reports)}
    else:
        shown |= {"fixture": fixture_name, **fixture_json(cases, reports), "backends": reports_json(reports)}
    return json_text.dumps({**shown, "unavailable": unavailable}, ensure_ascii=False, indent=2) + "\n"
