"""`SearchService`: everything a server can answer, as records, over one index and one set of models.

MCP, HTTP and the warm worker all call this; none of them opens an index or a model itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.app.searching import SearchRequest, narrow_query, needed_roles, read_query, search_options
from qmd.errors import ModelError, NotFoundError, StoreError, UsageError
from qmd.inference.base import EngineDescription
from qmd.records import IndexStatus, Query, SearchResponse, StoredDocument
from qmd.retrieval.listening import CancelledSearch, Listener
from qmd.server.deadline import Patience, parse_timeout
from qmd.server.pools import EnginePool, ReaderPool, Role, parse_model_ttl
from qmd.server.requests import GetRequest, MultiGetRequest

if TYPE_CHECKING:
    from qmd.config import Locations
    from qmd.indexing.embed import EmbedReport
    from qmd.inference import Engines, EngineSettings
    from qmd.retrieval.options import SearchOptions
    from qmd.store import IndexReader

MAX_DOCUMENTS = 1_000
MAX_ANSWER_BYTES = 16 * 1024 * 1024
"""Texts of one `multi_get` together, in characters: four million tokens, more than any model reads."""

_CLOSE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Overview:
    """An index in three facts: number of documents, the user's note on everything, collections searched by default."""

    documents: int
    global_context: str | None
    default_collections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EmbedderFacts:
    """An embedding model in words; no description means that there is none, `notes` say why."""

    description: EngineDescription | None
    fingerprint: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FetchedLines:
    """Lines of one document; `text` starts at line `first_line`."""

    document: StoredDocument
    context: str | None
    text: str
    first_line: int
    line_numbers: bool


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A document that was named but left out."""

    document: StoredDocument
    reason: str


@dataclass(frozen=True, slots=True)
class FetchedDocuments:
    """What a pattern named, in order, and what could not be resolved."""

    entries: tuple[FetchedLines | SkippedDocument, ...]
    problems: tuple[str, ...]


class SearchService:
    """Answers searches, documents and status. Thread-safe; nothing is opened before it is needed.

    Args:
        database: The index file.
        readers: Readers of it.
        engines: Models, loaded on first use.
        settings: The models to use now; asked before every search, so an edited configuration takes effect.
        timeout_s: How long an answer may take; None for as long as it takes. Computing vectors is not limited.
    """

    def __init__(
        self,
        database: Path,
        readers: ReaderPool,
        engines: EnginePool[EngineSettings],
        settings: Callable[[], EngineSettings],
        timeout_s: float | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._database = database
        self._readers = readers
        self._engines = engines
        self._settings = settings

    def query(self, request: SearchRequest, listener: Listener = Listener()) -> SearchResponse:
        """Search as a tool call asks.

        Raises:
            CancelledSearch: If the listener goes before the answer is there.
            DeadlineError: If it takes too long; every other answer may fail so, too.
            UsageError: For a query that breaks the rules of its language.
            NotFoundError: If there is no index, or no collection of a name.
            StoreError: If it cannot be read.
        """
        query = read_query(request)
        options = search_options(request)
        with self._request(listener) as (reader, patience):
            query, warnings = narrow_query(query, reader.collections(), request.collections)
            response = self._run(reader, query, options, self._settings(), needed_roles(query, options), patience)
        return replace(response, warnings=(*warnings, *response.warnings))

    def search(
        self,
        query: Query,
        options: SearchOptions,
        settings: EngineSettings,
        roles: frozenset[Role],
        listener: Listener = Listener(),
    ) -> SearchResponse:
        """Run a search that a command prepared, with the models that it chose.

        Raises:
            CancelledSearch: If the listener goes before the answer is there.
            QmdError: Whatever the pipeline raises.
        """
        with self._request(listener) as (reader, patience):
            return self._run(reader, query, options, settings, roles, patience)

    def get(self, request: GetRequest) -> FetchedLines:
        """One document or some of its lines. Only indexed documents are found, whatever the path says.

        Raises:
            NotFoundError: Nothing fits; the hint names similar paths.
            UsageError: Several documents fit.
        """
        from qmd.retrieval.lookup import parse_line_range, resolve_document

        with self._request() as (reader, _):
            document = resolve_document(reader, request.file)
            given = parse_line_range(request.file)
            # A file may be called "notes:12"; then the suffix is part of its name.
            is_range = not f"{document.collection}/{document.path}".endswith(request.file.rsplit("/", 1)[-1])
            first = request.from_line or (given.start if is_range else None) or 1
            count = request.max_lines or (given.count if is_range else None)
            lines = _text_of(reader, document).split("\n")[first - 1 :]
            text = "\n".join(lines if count is None else lines[:count])
            return FetchedLines(document, _context_of(reader, document), text, first, request.line_numbers)

    def multi_get(self, request: MultiGetRequest) -> FetchedDocuments:
        """Every document that a pattern names, large ones left out, and what goes beyond the size of an answer.

        Raises:
            UsageError: If the pattern is empty, or lists more names than an answer has documents.
        """
        from qmd.retrieval.lookup import resolve_many

        if request.pattern.count(",") >= MAX_DOCUMENTS:
            raise UsageError(f"pattern: at most {MAX_DOCUMENTS} names in one call")
        with self._request() as (reader, _):
            found = resolve_many(reader, request.pattern)
            entries: list[FetchedLines | SkippedDocument] = []
            room = MAX_ANSWER_BYTES
            for document in found.documents[:MAX_DOCUMENTS]:
                entry = _fetch_or_skip(reader, document, request, room)
                room -= len(entry.text) if isinstance(entry, FetchedLines) else 0
                entries.append(entry)
        problems = [problem.message for problem in found.problems]
        if len(found.documents) > MAX_DOCUMENTS:
            problems.append(
                f"{len(found.documents)} files match, the first {MAX_DOCUMENTS} are shown: narrow the pattern"
            )
        return FetchedDocuments(tuple(entries), tuple(problems))

    def status(self) -> IndexStatus:
        """What the index holds, its vectors being those of the model that was used last."""
        with self._request() as (reader, _):
            return reader.status(None)

    def overview(self) -> Overview:
        """What a client is told about the index when a session opens."""
        with self._readers.reader() as reader:
            names = tuple(collection.name for collection in reader.collections() if collection.include_by_default)
            return Overview(reader.count_documents(), reader.global_context(), names)

    def describe_embedder(self, settings: EngineSettings) -> EmbedderFacts:
        """The embedding model that `settings` mean; loads it."""
        with self._engines.lease(settings, frozenset({"embed"})) as engines:
            embedder = engines.embedder
            if embedder is None:
                return EmbedderFacts(None, None, engines.notes)
            return EmbedderFacts(embedder.description, embedder.fingerprint, engines.notes)

    def embed(
        self,
        settings: EngineSettings,
        collections: Sequence[str] | None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> EmbedReport:
        """Compute the vectors that are missing, while searches go on.

        Raises:
            ModelError: There is no embedding model.
            BusyError: Another process keeps the index.
        """
        from qmd.indexing.embed import embed_pending
        from qmd.store import open_writer

        with self._engines.lease(settings, frozenset({"embed"})) as engines:
            if engines.embedder is None:
                raise ModelError(f"vectors are not computed: {'; '.join(engines.notes) or 'no embedding model'}")
            with open_writer(self._database) as writer:
                return embed_pending(
                    writer,
                    engines.embedder,
                    collections=collections,
                    on_progress=on_progress,
                    should_stop=should_stop,
                )

    def release_idle(self) -> None:
        """Give up models and open readers once they have not been used for their time to live."""
        if self._engines.unload_if_idle():
            self._readers.close()

    def close(self) -> None:
        """Give up everything; waits a moment for a search that is still running."""
        self._engines.unload(_CLOSE_TIMEOUT_S)
        self._readers.close()

    @contextmanager
    def _request(self, listener: Listener = Listener()) -> Iterator[tuple[IndexReader, Patience]]:
        """A reader that stops when the time is over or the listener has gone, and who to ask about that."""
        patience = Patience(listener, self.timeout_s)
        with self._readers.reader() as reader:
            reader.stop_when(lambda: patience.is_gone)
            try:
                yield reader, patience
            except (CancelledSearch, StoreError):
                # Both are how the work ends; the patience knows why.
                patience.check()
                raise
            finally:
                reader.stop_when(None)

    def _run(
        self,
        reader: IndexReader,
        query: Query,
        options: SearchOptions,
        settings: EngineSettings,
        roles: frozenset[Role],
        patience: Patience,
    ) -> SearchResponse:
        from qmd.retrieval.pipeline import search

        if roles and not self._engines.is_loaded:
            patience.begin("loading models")
        with self._engines.engines(settings, roles, patience.check) as engines:
            patience.begin("searching")
            return search(reader, engines, query, options, patience)


def open_service(
    locations: Locations, environ: Mapping[str, str], open_index: Callable[[], IndexReader] | None = None
) -> SearchService:
    """The service of an index whose models come from the configuration, as far as that is trusted.

    Args:
        locations: The index.
        environ: Trust, models and their time to live.
        open_index: Opens a reader after taking over an edited configuration; None opens the index as it is.
    """
    watched = (locations.database, locations.config_file)
    return _build(watched, lambda: engine_settings(locations, environ), environ, open_index)


def local_service(database: Path, environ: Mapping[str, str]) -> SearchService:
    """The service of a warm worker: every call brings its own models."""

    def no_settings() -> EngineSettings:
        raise UsageError("a warm worker has no models of its own")

    return _build((database,), no_settings, environ, None)


def _build(
    watched: tuple[Path, ...],
    settings: Callable[[], EngineSettings],
    environ: Mapping[str, str],
    open_index: Callable[[], IndexReader] | None,
) -> SearchService:
    def open_plainly() -> IndexReader:
        from qmd.store import open_reader

        return open_reader(watched[0])

    def load(settings: EngineSettings, roles: frozenset[Role]) -> Engines:
        from qmd.inference import load_engines

        return load_engines(settings, roles)

    ttl_s = parse_model_ttl(environ.get("QMD_MODEL_TTL"))
    readers = ReaderPool(open_index or open_plainly, watched)
    engines = EnginePool(load, ttl_s, stamp=_models_stamp)
    return SearchService(watched[0], readers, engines, settings, parse_timeout(environ))


def _models_stamp(settings: EngineSettings) -> tuple[tuple[str, int], ...]:
    """Names and times of the model folders: a pull or a removal changes what `auto` means."""
    try:
        return tuple(sorted((entry.name, entry.stat().st_mtime_ns) for entry in settings.models_dir.iterdir()))
    except OSError:
        return ()


def engine_settings(locations: Locations, environ: Mapping[str, str]) -> EngineSettings:
    """The configured models; those of a project's own configuration only when the user trusts it.

    Raises:
        ConfigError: If the configuration cannot be read.
    """
    from qmd import workspace
    from qmd.config import Config, gated_items, is_trusted, load_config, needs_full_config

    config = Config()
    if needs_full_config(locations):
        config = load_config(locations)
        gated = gated_items(config, locations)
        if not is_trusted(gated, locations, environ):
            refused = {slot for slot, _ in gated.models}
            config = replace(config, models={s: model for s, model in config.models.items() if s not in refused})
    # Only these are heard by engines; the rest would make equal settings look different.
    heard = {name: value for name, value in environ.items() if name.startswith("QMD_")}
    return workspace.engine_settings(config, locations, heard)


def _fetch_or_skip(
    reader: IndexReader, document: StoredDocument, request: MultiGetRequest, room: int
) -> FetchedLines | SkippedDocument:
    from qmd.render.documents import keep_lines

    if document.size > request.max_bytes:
        size_kb, limit_kb = round(document.size / 1024), round(request.max_bytes / 1024)
        return SkippedDocument(document, f"File too large ({size_kb}KB > {limit_kb}KB)")
    text = keep_lines(_text_of(reader, document), request.max_lines)
    if len(text) > room:
        return SkippedDocument(document, "The answer is full: ask for fewer files at once")
    return FetchedLines(document, _context_of(reader, document), text, 1, request.line_numbers)


def _text_of(reader: IndexReader, document: StoredDocument) -> str:
    text = reader.texts([document.hash]).get(document.hash)
    if text is None:
        raise NotFoundError(f"text of '{document.uri}' is gone from the index", "qmd update")
    return text


def _context_of(reader: IndexReader, document: StoredDocument) -> str | None:
    from qmd.retrieval.lookup import context_for

    collection = next((known for known in reader.collections() if known.name == document.collection), None)
    return context_for(collection, reader.global_context(), document.path)
