"""Reading half of an index: searches, documents, status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec.structs import replace

from qmd.app.freshness import Freshness, mark_missing
from qmd.app.records import DEFAULT_MAX_BYTES, IndexHealth, Overview, as_names
from qmd.app.resources import OpenedIndex
from qmd.errors import MissingDocumentError, ModelError, NotFoundError, refuse_unknown
from qmd.escapes import message_line
from qmd.file_names import to_text
from qmd.records import Scope, StageTiming
from qmd.retrieval.trace import Listener
from qmd.status import COUNTED, IndexStatus
from qmd.times import days_since

if TYPE_CHECKING:
    from qmd.app.deadlines import Deadline
    from qmd.app.fields import Field
    from qmd.app.records import DocumentText, DocumentTexts, Listing, NoteLinks, RelatedNotes
    from qmd.inference.base import Engines
    from qmd.inference.records import Role
    from qmd.records import Collection, Query, SearchResponse, StoredDocument, SubQuery
    from qmd.retrieval.lookup import ResolvedDocument
    from qmd.retrieval.request import SearchKeywords, SearchRequest
    from qmd.store.base import IndexReader

_LOADING_MS = 550
"""Time left from which the built-in models can be loaded and still be used (about 0.5 s with imports)."""

_NO_TIME_TO_LOAD = "loading models would take longer, searched by words only; a warm process has them ready"


class ReadingIndex(OpenedIndex):
    """Requests that read an index; `Index` adds those that change it."""

    def search(
        self,
        query: str | Sequence[SubQuery] | SearchRequest,
        listener: Listener = Listener(),
        *,
        collections: str | Sequence[str] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> SearchResponse:
        """Search by words and by meaning, fused and reranked, or in another `mode`.

        Args:
            query: A question, words, or a query document (`lex:`, `vec:`, `hyde:` lines); typed sub-queries, most
                important first; or a whole request.
            listener: Receives the stages, and may end the search.
            collections: Only these; None = those that the query names, else those that are searched by default.
            **keywords: See `SearchRequest`.

        Raises:
            CancelledSearch: The listener cancels before the answer.
            DeadlineError: It takes too long; this applies to every other method as well.
            UsageError: The query breaks the rules of its language.
            NotFoundError: The index or a collection does not exist.
            StoreError: The index cannot be read.
        """
        from qmd.retrieval.query import read_query, resolve, roles_of, select_collections
        from qmd.retrieval.request import as_request

        request = as_request(query, collections, keywords)
        if request.text and request.text.startswith("@"):
            from qmd.config.saved import named_query

            request = replace(request, text=named_query(request.text, self._locations.config_dir))
        parsed, request = read_query(request), replace(request, folder=request.folder or str(self._locations.cwd))
        roles = roles_of(request, parsed)
        try:
            with self._request(listener, self._models_line if roles else self._words_line) as (reader, deadline):
                searched = select_collections(parsed, request, reader.collections())
                # A budget in milliseconds leaves no time to look for changed files.
                state = self._refresher.refresh(reader, searched) if request.budget_ms is None else Freshness()
                resolved, warnings = resolve(parsed, request, reader)
                missing, limit = self._refresher.missing_folders(reader), request.limit + request.start
                paged = replace(request, limit=limit + len(request.seen), missing=tuple(missing))
                response = mark_missing(self._run(reader, resolved, paged, roles, deadline), missing)
        except NotFoundError:
            # Without an index, an unknown collection is still the more useful error.
            for name in request.collections:
                self.collection(name)
            raise
        if request.cursor or request.seen:
            from qmd.app.paging import turn_page

            response = turn_page(response, request)
        if request.max_tokens is not None:
            from qmd.app.budget import check_tokens, fit_hits, measure_texts

            response = fit_hits(response, check_tokens(request.max_tokens, "max_tokens"), measure_texts)
        lines = tuple(map(message_line, (*warnings, *state.warnings, *response.warnings)))
        return replace(response, warnings=lines, refreshed=state.refreshed, is_fresh=state.is_known)

    def pack(
        self,
        question: str | Sequence[SubQuery],
        listener: Listener = Listener(),
        *,
        tokens: int = 4000,
        form: str = "md",
        collections: str | Sequence[str] | None = None,
        intent: str | None = None,
    ) -> str:
        """Return an answer from several notes, with addresses, within `tokens`: Markdown (`md`) or `json`."""
        from qmd.plugins import hooks
        from qmd.retrieval.request import as_request

        return hooks.pack(self, as_request(question, collections, {"intent": intent}), listener, tokens, form)

    def expand_query(self, query: str, *, intent: str | None = None) -> tuple[SubQuery, ...]:
        """Return the sub-queries that the expansion model proposes; empty when none is useful.

        Raises:
            ModelError: There is no expansion model.
        """
        with self._engines.engines(self.engine_settings(), frozenset({"expand"})) as engines:
            if engines.expander is None:
                raise ModelError("; ".join(engines.notes) or "there is no expansion model", "run: qmd models pull")
            return engines.expander.expand(query, intent=intent).subqueries

    def _run(
        self, reader: IndexReader, query: Query, request: SearchRequest, roles: frozenset[Role], deadline: Deadline
    ) -> SearchResponse:
        from qmd.app.freshness import QueryTimeVectors
        from qmd.retrieval.pipeline import search

        refusal: tuple[str, ...] = ()
        budget_ms, spent_ms = request.budget_ms, request.overhead_ms
        if roles and not self._engines.is_loaded and budget_ms is not None and budget_ms - spent_ms < _LOADING_MS:
            refusal = (f"budget of {budget_ms} ms: {_NO_TIME_TO_LOAD}",)
            roles, request = frozenset(), replace(request, mode="lexical")
        vectors = QueryTimeVectors()
        self.need_models(reader, query.scope.collections if roles else ())
        with self._load(roles, deadline) as engines:
            response = search(reader, engines, query, request, deadline, open_source=vectors.open)
        if vectors.has_new and self._refresher.may_write():
            vectors.store(reader.path)
        timings = (StageTiming("load", engines.load_ms),) if engines.load_ms else ()
        hits = self._configuration.quote_contexts(reader, response.hits)
        return replace(response, hits=hits, timings=timings + response.timings, warnings=refusal + response.warnings)

    @contextmanager
    def _load(self, roles: frozenset[Role], deadline: Deadline) -> Iterator[Engines]:
        """Yield the models of `roles`, loaded for as long as the block runs."""
        from qmd.inference.base import Engines

        if not roles:
            yield Engines()
            return
        if not self._engines.is_loaded:
            deadline.begin("loading models")
        with self._engines.engines(self.engine_settings(), roles, deadline.check) as engines:
            deadline.begin("searching")
            yield engines

    def get(
        self, reference: str, *, from_line: int | None = None, max_lines: int | None = None, folder: Path | None = None
    ) -> DocumentText:
        """Return a document, or lines of it.

        Args:
            reference: A `qmd://` address, `collection/path`, a path or its end, with or without `.md`, a name, title or
                alias, a wiki link, or a docid such as `#a1b2c3`; may end in `:LINE`, `:LINE:COUNT`, `:FIRST-LAST` or
                `#Heading`. Of several documents with the same text, `warnings` name the others.
            from_line: First line, from 1; replaces the one in `reference`.
            max_lines: Maximum number of lines.
            folder: Folder that file names may be relative to; None for no folder.

        Raises:
            NotFoundError: No document matches; the hint names similar paths, or the message why a file is not indexed.
            UsageError: Several documents match.
        """
        from qmd.app.documents import fetch_document

        with self._resolving(reference, folder) as (reader, found):
            missing = self._refresher.missing_folders(reader)
            fetched = fetch_document(reader, found, from_line, max_lines, missing)
            return self._configuration.quote_contexts(reader, (fetched,))[0]

    def multi_get(
        self,
        pattern: str | Sequence[str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        max_lines: int | None = None,
        folder: Path | None = None,
    ) -> DocumentTexts:
        """Return every document that a glob (`journals/2026-*.md`) or a comma-separated list of references names.

        Args:
            pattern: See above; several are one name or pattern with spaces, or else one each.
            max_bytes: Larger documents are returned without their text.
            max_lines: Maximum number of lines of each.
            folder: As for `get`.

        Raises:
            UsageError: The pattern is empty.
        """
        from qmd.app.documents import fetch_documents

        with self._request() as (reader, _):
            found = fetch_documents(reader, as_names(pattern) or (), max_bytes, max_lines, folder)
            return replace(found, entries=self._configuration.quote_contexts(reader, found.entries))

    def links(self, reference: str, *, folder: Path | None = None) -> NoteLinks:
        """Return the links from and to a note; arguments and errors are those of `get`."""
        from qmd.app.linking import list_links

        with self._resolving(reference, folder) as (reader, found):
            return list_links(reader, found)

    def links_between(self, documents: Sequence[StoredDocument]) -> tuple[tuple[StoredDocument, StoredDocument], ...]:
        """Return the pairs of these documents in which the first links to the second, in order."""
        known = {one.id: one for one in documents}
        with self._request() as (reader, _):
            found = dict.fromkeys((one.source, one.target) for note in documents for one in reader.links_from(note))
        return tuple((known[a], known[b]) for a, b in found if a in known and b is not None and b in known and a != b)

    def related(
        self,
        reference: str,
        *,
        limit: int = 10,
        collections: str | Sequence[str] | None = None,
        folder: Path | None = None,
    ) -> RelatedNotes:
        """Return the notes nearest to one by vectors and links; errors are those of `get`.

        Args:
            reference: As for `get`.
            limit: Maximum number of notes.
            collections: Only these; None = its own and those that are searched by default.
            folder: As for `get`.
        """
        from qmd.app.linking import find_related

        with self._resolving(reference, folder) as (reader, found):
            return find_related(reader, found, limit, as_names(collections))

    def ls(self, place: str) -> Listing:
        """List the documents of `collection`, `collection/prefix`, their addresses, or a path inside its folder.

        Raises:
            NotFoundError: The collection does not exist.
        """
        from qmd.app.documents import list_documents, split_place

        try:
            with self._request() as (reader, _):
                return list_documents(reader, place)
        except NotFoundError:
            if not self.exists():
                split_place(place, self._configuration.written().collections)
                raise NotFoundError("nothing is indexed yet", "run: qmd index") from None
            raise

    def documents(self, collection: str | None = None, prefix: str = "") -> tuple[StoredDocument, ...]:
        """Return documents by collection and path: all, of a collection, or below a path in it.

        Raises:
            NotFoundError: The collection does not exist.
        """
        with self._request() as (reader, _):
            names = as_names(collection)
            refuse_unknown(names or (), (one.name for one in reader.collections()))
            return tuple(reader.iter_documents(Scope(collections=names, path_prefix=prefix or None)))

    def fields(self, collection: str | None = None, field: str | None = None) -> tuple[Field, ...]:
        """Return the front-matter fields of the notes, or one of them; a single name may be a field."""
        from qmd.app.fields import list_fields

        if collection is not None and field is None and self._configuration.written().collection(collection) is None:
            with suppress(NotFoundError):
                return list_fields(self.documents(), collection)
        return list_fields(self.documents(collection), field)

    def disk_paths(self, documents: Sequence[StoredDocument], *, relative: bool = False) -> Mapping[str, str]:
        """Return address → path of each document whose file exists, as `./path` below the working directory."""
        from qmd.app.disk_paths import disk_paths

        with self._request() as (reader, _):
            return disk_paths(documents, reader.collections(), self._locations.cwd if relative else None)

    def openers(self, places: Sequence[tuple[StoredDocument, int]]) -> Mapping[str, str]:
        """Return address → link that opens each document at its line; documents without such a link are omitted."""
        from qmd.app.disk_paths import linker

        paths, link = self.disk_paths([document for document, _ in places]), linker(self.editor_uri())
        found = ((one.uri, link(paths[one.uri], line)) for one, line in places if one.uri in paths)
        return {uri: target for uri, target in found if target}

    def collections(self) -> tuple[Collection, ...]:
        """Return the configured collections, in order."""
        return self._configuration.written().collections

    def indexed_collections(self) -> tuple[Collection, ...]:
        """Return the collections in the index; before it exists, the configured ones."""
        try:
            with self._request() as (reader, _):
                return tuple(reader.collections())
        except NotFoundError:
            return self.collections()

    def trusted_collections(self) -> tuple[Collection, ...]:
        """Return the configured collections, without those that an untrusted project may not reach."""
        return self._configuration.load().collections

    def agents_may_write(self) -> tuple[Collection, ...]:
        """Return the collections to which agents may add notes, by the user's own configuration only."""
        config = self._configuration.load()
        return tuple(one for one in config.collections if one.name in config.writable)

    def collection(self, name: str) -> Collection:
        """Return the collection called `name`.

        Raises:
            NotFoundError: It does not exist; the hint names the nearest.
        """
        return self._configuration.written().require(name)

    def default_collections(self) -> tuple[str, ...]:
        """Return the names of the collections that are searched when none is named."""
        return tuple(one.name for one in self.collections() if one.include_by_default)

    def editor_uri(self) -> str | None:
        """Return the template of links to results: of the environment, else the trusted configuration."""
        return self._environ.get("QMD_EDITOR_URI") or self._configuration.settings().editor_uri

    def status(self) -> IndexStatus:
        """Return the status of the index, with the vectors of the last used model; zeros before it exists."""
        from qmd.app.file_types import kinds_text, other_kinds, to_read

        try:
            with self._request() as (reader, _):
                stored = reader.status(None)
                kinds, missing = other_kinds(reader), self._refresher.missing_folders(reader)
                problems = tuple(one for one in stored.left_out if one.message not in COUNTED)
                status = replace(
                    stored,
                    address=self._locations.address,
                    others=kinds_text(kinds) + to_read(kinds) if kinds else None,
                    left_out=tuple(one for one in problems if not one.is_indexed),
                    problems=problems,
                    missing=tuple(f"{name} ({to_text(path)})" for name, path in missing.items()),
                )
                language = next((one.language for one in stored.collections if one.language and not one.model), None)
        except NotFoundError:
            return IndexStatus(self.path, 0, 0, 0, 0, 0, 0, None, None, (), address=self._locations.address)
        if language is not None:
            from qmd.inference.loader import advice_for

            status = replace(status, advice=advice_for(self.engine_settings(), language))
        return status

    def days_since_update(self) -> int | None:
        """Return whole days since the last completed update; None before the first."""
        with self._request() as (reader, _):
            return days_since(moment) if (moment := reader.updated_at()) else None

    def health(self) -> IndexHealth:
        """Return whether the index needs an update or vectors."""
        now = self.status()
        return IndexHealth(now.documents, now.pending_documents, self.days_since_update() if now.updated_at else None)

    def overview(self) -> Overview:
        """Return the overview that a client gets when a session opens.

        Raises:
            NotFoundError: The index does not exist.
        """
        with self._request() as (reader, _):
            names = tuple(collection.name for collection in reader.collections() if collection.include_by_default)
            context = reader.global_context() if self._configuration.trusts_contexts(reader) else None
            return Overview(reader.count_documents(), context, names)

    def check(self) -> tuple[str, ...]:
        """Return every fault of the index file, one line each; empty when it is sound. Reads the whole file."""
        with self._configuration.open_reader() as reader:
            return tuple(reader.check())

    @contextmanager
    def _resolving(self, reference: str, folder: Path | None) -> Iterator[tuple[IndexReader, ResolvedDocument]]:
        """Yield a reader and the document of a reference; a missing one is explained."""
        from qmd.retrieval.lookup import resolve_document

        with self._request() as (reader, _):
            try:
                yield reader, resolve_document(reader, reference, folder)
            except MissingDocumentError as error:
                from qmd.app.documents import explain_missing

                raise explain_missing(error, reference, reader, self._locations.cwd) from error
