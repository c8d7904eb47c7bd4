"""The half of a store that asks: searches, documents, state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from qmd.api.records import DocumentText, DocumentTexts, IndexHealth, SkippedDocument
from qmd.clock import days_since
from qmd.errors import ModelError, NotFoundError
from qmd.records import IndexStatus, Scope, SearchResponse, StoredDocument, SubQuery

if TYPE_CHECKING:
    from qmd.api.homes import ConfigHome
    from qmd.config.paths import Locations
    from qmd.inference import Engines, EngineSettings
    from qmd.retrieval.options import Mode
    from qmd.server.pools import Role
    from qmd.server.service import SearchService

DEFAULT_MAX_BYTES = 65_536
"""Longest text (in characters) that `Store.multi_get` returns."""


class ReadingStore:
    """An index and the models that search it; `Store` adds what changes them."""

    def __init__(self, locations: Locations, home: ConfigHome, environ: Mapping[str, str]) -> None:
        from qmd.server.pools import EnginePool, ReaderPool

        def load(settings: EngineSettings, roles: frozenset[Role]) -> Engines:
            from qmd.inference import load_engines

            return load_engines(settings, roles)

        self._locations = locations
        self._home = home
        self._environ = environ
        self._readers = ReaderPool(home.open_reader, (locations.database, locations.config_file))
        self._engines: EnginePool[EngineSettings] = EnginePool(load, ttl_s=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give up models and open files. The store can still be used, and then opens them again."""
        self._engines.unload()
        self._readers.close()

    @property
    def path(self) -> Path:
        """The index file."""
        return self._locations.database

    # --- searching --------------------------------------------------------------------------------

    def search(
        self,
        query: str | Sequence[SubQuery],
        *,
        collections: str | Sequence[str] | None = None,
        limit: int = 10,
        min_relevance: float = 0.0,
        intent: str | None = None,
        rerank: bool = True,
        expand: bool | None = None,
        candidate_limit: int | None = None,
        budget_ms: int | None = None,
        explain: bool = False,
        full_body: bool = False,
    ) -> SearchResponse:
        """Search by words and by meaning, fused and reranked: `qmd query`.

        Args:
            query: A question, words, or a query document (`lex:`, `vec:`, `hyde:` lines); or typed sub-queries, most
                important first.
            collections: Only these; None = those that are searched by default.
            limit: Most hits.
            min_relevance: Hits below are left out, in [0, 1].
            intent: What the answer is for.
            rerank: Whether the best candidates are read by the reranker.
            expand: True lets the model propose sub-queries, False forbids it, None leaves it to the query.
            candidate_limit: Candidates that the reranker reads; None leaves it to what the reranker costs.
            budget_ms: Wall time; stages are cut to hold it.
            explain: Give each hit its `explanation`.
            full_body: Give each hit its whole text.

        Raises:
            UsageError: The query breaks the rules of its language.
            NotFoundError: An unknown collection, or nothing is indexed yet.
        """
        return self._search(
            query,
            collections,
            limit=limit,
            min_relevance=min_relevance,
            intent=intent,
            rerank=rerank,
            expand=expand,
            candidate_limit=candidate_limit,
            budget_ms=budget_ms,
            explain=explain,
            full_body=full_body,
        )

    def search_lexical(
        self,
        query: str,
        *,
        collections: str | Sequence[str] | None = None,
        limit: int = 20,
        min_relevance: float = 0.0,
        full_body: bool = False,
    ) -> SearchResponse:
        """Search by words (BM25), without any model: `qmd search`. Arguments and errors as in `search`."""
        return self._search(
            query, collections, mode="lexical", limit=limit, min_relevance=min_relevance, full_body=full_body
        )

    def search_dense(
        self,
        query: str,
        *,
        collections: str | Sequence[str] | None = None,
        limit: int = 20,
        min_relevance: float = 0.0,
        expand: bool | None = False,
        full_body: bool = False,
    ) -> SearchResponse:
        """Search by meaning (vectors): `qmd vsearch`. Arguments and errors as in `search`."""
        return self._search(
            query,
            collections,
            mode="dense",
            limit=limit,
            min_relevance=min_relevance,
            expand=expand,
            full_body=full_body,
        )

    def expand_query(self, query: str, *, intent: str | None = None) -> tuple[SubQuery, ...]:
        """The sub-queries that the expansion model proposes; empty when none is of use.

        Raises:
            ModelError: There is no expansion model.
        """
        with self._engines.engines(self._settings(), frozenset({"expand"})) as engines:
            if engines.expander is None:
                raise ModelError("; ".join(engines.notes) or "there is no expansion model", "run: qmd models pull")
            return engines.expander.expand(query, intent=intent).subqueries

    # --- reading ----------------------------------------------------------------------------------

    def get(self, reference: str, *, from_line: int | None = None, max_lines: int | None = None) -> DocumentText:
        """One document, or lines of it.

        Args:
            reference: A `qmd://` address, `collection/path`, a path or its end, or a docid such as `#a1b2c3`; may end
                in `:LINE` or `:LINE:COUNT`.
            from_line: First line, from 1; goes before the one in `reference`.
            max_lines: Most lines.

        Raises:
            NotFoundError: Nothing fits; the hint names similar paths.
            UsageError: Several documents fit.
        """
        from qmd.server.requests import GetRequest

        fetched = self._service().get(GetRequest(reference, from_line, max_lines))
        return DocumentText(fetched.document, fetched.context, fetched.text, fetched.first_line)

    def multi_get(
        self, pattern: str, *, max_bytes: int = DEFAULT_MAX_BYTES, max_lines: int | None = None
    ) -> DocumentTexts:
        """Every document that a glob (`journals/2026-*.md`) or a comma list of references names.

        Args:
            pattern: See above.
            max_bytes: Longer texts are skipped.
            max_lines: Most lines of each.

        Raises:
            UsageError: The pattern is empty.
        """
        from qmd.server.requests import MultiGetRequest
        from qmd.server.service import FetchedLines

        found = self._service().multi_get(MultiGetRequest(pattern, max_lines, max_bytes))
        documents, skipped = [], []
        for entry in found.entries:
            if isinstance(entry, FetchedLines):
                documents.append(DocumentText(entry.document, entry.context, entry.text))
            else:
                skipped.append(SkippedDocument(entry.document, entry.reason))
        return DocumentTexts(tuple(documents), tuple(skipped), found.problems)

    def documents(self, collection: str | None = None, prefix: str = "") -> tuple[StoredDocument, ...]:
        """Documents by collection and path: all, those of a collection, or those below a path in it.

        Raises:
            NotFoundError: An unknown collection.
        """
        from qmd.workspace.collections import refuse_unknown

        with self._readers.reader() as reader:
            names = None if collection is None else (collection,)
            refuse_unknown(names or (), reader.collections())
            return tuple(reader.iter_documents(Scope(collections=names, path_prefix=prefix or None)))

    # --- state ------------------------------------------------------------------------------------

    def status(self) -> IndexStatus:
        """What the index holds, its vectors being those of the model that was used last; zeros before there is one."""
        try:
            with self._readers.reader() as reader:
                return reader.status(None)
        except NotFoundError:
            return IndexStatus(self.path, 0, 0, 0, 0, 0, 0, None, None, ())

    def health(self) -> IndexHealth:
        """Whether the index needs an update or vectors."""
        status = self.status()
        days = None if status.updated_at is None else days_since(status.updated_at)
        return IndexHealth(status.documents, status.pending_documents, days)

    def check(self) -> tuple[str, ...]:
        """Everything found wrong with the index file, one line each; empty when it is sound. Reads the whole file."""
        with self._home.open_reader() as reader:
            return tuple(reader.check())

    # --- inside -----------------------------------------------------------------------------------

    def _search(
        self, query: str | Sequence[SubQuery], collections: str | Sequence[str] | None, **wishes: Unpack[_Wishes]
    ) -> SearchResponse:
        from qmd.app.searching import SearchRequest

        text, typed = (query, ()) if isinstance(query, str) else (None, tuple(query))
        return self._service().query(
            SearchRequest(text, typed, collections=tuple(as_names(collections) or ()), **wishes)
        )

    def _settings(self) -> EngineSettings:
        from qmd.workspace import engine_settings

        # Only these are heard by engines; any other change of the environment would load the models again.
        heard = {name: value for name, value in self._environ.items() if name.startswith("QMD_")}
        return engine_settings(self._home.load(), self._locations, heard)

    def _service(self) -> SearchService:
        from qmd.server.service import SearchService

        return SearchService(self.path, self._readers, self._engines, self._settings)


class _Wishes(TypedDict, total=False):
    """What a caller may choose besides query and collections; see `SearchRequest`."""

    mode: Mode
    limit: int
    min_relevance: float
    intent: str | None
    rerank: bool
    expand: bool | None
    candidate_limit: int | None
    budget_ms: int | None
    explain: bool
    full_body: bool


def as_names(collections: str | Sequence[str] | None) -> Sequence[str] | None:
    """Names given one by one or together; None stays None."""
    return [collections] if isinstance(collections, str) else collections
