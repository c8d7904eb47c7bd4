"""What `bench` measures: queries with judgements, and the index that answers them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from qmd.cli.invocation import Invocation
from qmd.cli.output import warn
from qmd.config.paths import Locations
from qmd.errors import NotFoundError, refuse_unknown
from qmd.inference.base import Engines
from qmd.inference.models.catalogue import Role
from qmd.plugins.bench.checks import impossible_cases
from qmd.plugins.bench.collections import JudgedQueries, has_corpus, read_beir, read_judged
from qmd.plugins.bench.corpus_index import entry_id, index_corpus
from qmd.plugins.bench.fixture import Fixture, judge_fixture, read_fixture
from qmd.plugins.bench.known_item import known_item_queries, name_queries
from qmd.records import Scope, StoredDocument
from qmd.store.base import IndexReader
from qmd.store.opening import open_reader


class Task(Struct, frozen=True):
    """What is measured: queries, the index that answers them, and how its documents are called in the judgements."""

    name: str
    judged: JudgedQueries
    reader: IndexReader
    engines: Engines
    scope: Scope
    name_of: Callable[[StoredDocument], str]
    fixture: Fixture | None = None


class Request(Struct, frozen=True):
    """The command line, checked."""

    target: Path | None
    auto: int | None
    """Queries to draw from headings and links, None where others are asked."""
    names: int | None
    """Queries to draw from the names of notes, as above."""
    collections: tuple[str, ...]
    backends: tuple[str, ...]
    is_chosen: bool
    """Whether the user named the backends: one that cannot run is then an error, else a warning."""
    qrels: Path | None
    queries: Path | None
    most: int | None
    save: Path | None
    compare: Path | None
    json: bool
    allow_gpu: bool


@contextmanager
def open_task(invocation: Invocation, locations: Locations, request: Request) -> Iterator[Task]:
    """What a command line asks to be measured, its index open while the block runs."""
    if request.target is not None and not request.target.exists():
        raise NotFoundError(f"no fixture, folder or run '{request.target}'", "qmd bench --help")
    folder = request.target if request.target is not None and request.target.is_dir() else None
    index = invocation.open(locations, allow_gpu=request.allow_gpu)
    with index, index.engines(_roles(request)) as engines:
        for note in engines.notes:
            warn(note)
        if folder is not None and has_corpus(folder):
            with _corpus_reader(invocation, locations, folder, engines) as reader:
                yield Task(folder.resolve().name, read_beir(folder), reader, engines, Scope(), entry_id)
            return
        with index.reader() as reader:
            if not reader.count_documents():
                raise NotFoundError("nothing is indexed", "run: qmd index .")
            yield _own_task(request, folder, reader, engines)


def _own_task(request: Request, folder: Path | None, reader: IndexReader, engines: Engines) -> Task:
    """Queries of a fixture, of files or of the index itself, over the user's own index."""
    names = request.collections
    fixture = None
    if request.target is not None and folder is None:
        fixture = read_fixture(request.target)
        names = names or ((fixture.collection,) if fixture.collection else ())
    refuse_unknown(names, [one.name for one in reader.collections()])
    # Collections that are left out by default are measured all the same: a benchmark says what it is about.
    scope = Scope(collections=tuple(names)) if names else Scope()
    if next(reader.iter_documents(scope), None) is None:
        raise NotFoundError(f"collection '{names[0]}' holds no document", "qmd update")
    if fixture is not None and request.target is not None:
        for line in impossible_cases(reader, scope, fixture):
            warn(line)
        judged = judge_fixture(fixture)
        return Task(request.target.name, judged, reader, engines, scope, lambda document: document.uri, fixture)
    if request.auto is not None:
        judged = known_item_queries(reader, scope, request.auto)
        if not judged.queries:
            raise NotFoundError("no heading or link of this index can serve as a query", "qmd bench FIXTURE")
        return Task("auto", judged, reader, engines, scope, _path_in_collection)
    if request.names is not None:
        judged = name_queries(reader, scope, request.names)
        return Task("names", judged, reader, engines, scope, _path_in_collection)
    if folder is not None:
        judged = read_beir(folder)
    else:
        assert request.qrels is not None and request.queries is not None
        judged = read_judged(request.queries, request.qrels)
    return Task((folder or request.qrels or Path()).name, judged, reader, engines, scope, _judged_name(judged))


def _path_in_collection(document: StoredDocument) -> str:
    return f"{document.collection}/{document.path}"


def _judged_name(judged: JudgedQueries) -> Callable[[StoredDocument], str]:
    """How judgements made elsewhere call a document: by its address, its path, or its path without an ending."""
    known = {name for grades in judged.qrels.values() for name in grades}

    def name_of(document: StoredDocument) -> str:
        path = document.path
        names = (document.uri, _path_in_collection(document), path, path.rpartition(".")[0])
        return next((name for name in names if name in known), names[1])

    return name_of


@contextmanager
def _corpus_reader(
    invocation: Invocation, locations: Locations, folder: Path, engines: Engines
) -> Iterator[IndexReader]:
    """The index of a folder's own corpus, kept in the cache and made anew when the folder changes."""
    files = sorted(file for file in folder.glob("corpus.jsonl*") if file.is_file())
    state = [str(folder.resolve()), *(f"{file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)]
    digest = hashlib.sha256("\n".join(state).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    database = locations.cache / "bench" / f"{folder.resolve().name}-{digest}.sqlite"
    with invocation.progress("Vectors", "bytes") as line:
        index_corpus(folder, database, engines.embedder, line.show)
    with open_reader(database) as reader:
        yield reader


def _roles(request: Request) -> frozenset[Role]:
    if {"full", "hybrid"} & set(request.backends):
        return frozenset({"embed", "rerank", "expand"})
    return frozenset({"embed"}) if set(request.backends) - {"bm25"} else frozenset()
