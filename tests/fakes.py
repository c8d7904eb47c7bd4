"""In-memory stand-ins for the store and the models: small, deterministic, and good enough to rank."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription, Engines, Expansion
from qmd.records import (
    Candidate,
    Collection,
    IndexStatus,
    LexicalTerm,
    MetadataFilter,
    Scope,
    StoredDocument,
    SubQuery,
)

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r'"([^"]*)"(\*?)')


def fake_document(
    number: int,
    path: str,
    text: str,
    *,
    collection: str = "notes",
    title: str | None = None,
    modified_at: str = "2026-01-01T00:00:00Z",
    metadata: Mapping[str, str | int | float | bool | tuple[str, ...]] | None = None,
) -> StoredDocument:
    """A stored document; its hash is that of `text`."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return StoredDocument(
        id=number,
        collection=collection,
        path=path,
        title=title if title is not None else path.rsplit("/", 1)[-1].removesuffix(".md"),
        hash=digest,
        modified_at=modified_at,
        size=len(text),
        metadata=metadata or {},
    )


@dataclass
class FakeReader:
    """A `Reader` over a dict of documents, with tf-idf over words and the vectors of `embedder` (one chunk each)."""

    items: dict[int, tuple[StoredDocument, str]] = field(default_factory=dict)
    embedder: HashingEmbedder | None = None
    embedded: bool = True
    bare: frozenset[str] = frozenset()
    """Collections without vectors."""
    context: str | None = None
    roots: dict[str, Collection] = field(default_factory=dict)
    cache: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, text: str, **options: object) -> StoredDocument:
        """Add one document and return it."""
        document = fake_document(len(self.items) + 1, path, text, **options)  # type: ignore[arg-type]
        self.items[document.id] = (document, text)
        self.roots.setdefault(
            document.collection, Collection(name=document.collection, path=Path("/srv") / document.collection)
        )
        return document

    def close(self) -> None:
        return None

    def stop_when(self, is_over: Callable[[], bool] | None) -> None:
        """A fake is quick."""

    def collections(self) -> Sequence[Collection]:
        return tuple(self.roots.values())

    def global_context(self) -> str | None:
        return self.context

    def documents(self, ids: Sequence[int]) -> Mapping[int, StoredDocument]:
        return {number: self.items[number][0] for number in ids if number in self.items}

    def texts(self, hashes: Sequence[str]) -> Mapping[str, str]:
        wanted = set(hashes)
        return {document.hash: text for document, text in self.items.values() if document.hash in wanted}

    def find_path(self, collection: str, path: str) -> StoredDocument | None:
        for document, _ in self.items.values():
            if (document.collection, document.path) == (collection, path):
                return document
        return None

    def find_docid(self, prefix: str, limit: int = 10) -> Sequence[StoredDocument]:
        found = [document for document in self.iter_documents() if document.hash.startswith(prefix)]
        return found[:limit]

    def iter_documents(self, scope: Scope = Scope()) -> Iterator[StoredDocument]:
        found = [document for document, _ in self.items.values() if in_scope(document, scope)]
        yield from sorted(found, key=lambda document: (document.collection, document.path))

    def count_documents(self, scope: Scope = Scope()) -> int:
        return sum(1 for _ in self.iter_documents(Scope(collections=scope.collections)))

    def search_lexical(self, terms: Sequence[LexicalTerm], k: int, scope: Scope) -> Sequence[Candidate]:
        optional = [term for term in terms if not term.required and not term.excluded]
        required = [term for term in terms if term.required and not term.excluded]
        excluded = [term for term in terms if term.excluded]
        weights = dict(zip((term.fts for term in terms), self._idf(terms, scope), strict=False))
        found = []
        for document in self.iter_documents(scope):
            counts = {term.fts: self._count(document, term) for term in terms}
            positive = optional if not required else [*required, *optional]
            if any(counts[term.fts] for term in excluded) or not all(counts[term.fts] for term in required):
                continue
            score = sum(weights[term.fts] * min(counts[term.fts], 3) for term in positive)
            if score > 0:
                found.append(Candidate(document.id, score))
        found.sort(key=lambda candidate: (-candidate.score, candidate.document_id))
        return found[:k]

    def document_frequencies(self, terms: Sequence[LexicalTerm], scope: Scope = Scope()) -> Sequence[int]:
        documents = list(self.iter_documents(Scope(collections=scope.collections)))
        return [sum(1 for document in documents if self._count(document, term)) for term in terms]

    def similar_terms(self, term: str, limit: int = 5) -> Sequence[str]:
        words = {word for d, text in self.items.values() for word in _WORD.findall(f"{d.title} {text}".lower())}
        near = [word for word in words if word != term and _one_edit(word, term.lower())]
        return sorted(near)[:limit]

    def search_dense(
        self, vector: npt.NDArray[np.float32], k: int, scope: Scope, fingerprint: str
    ) -> Sequence[Candidate]:
        ids = [document.id for document in self.iter_documents(scope)]
        found = list(self.dense_scores(vector, ids, fingerprint).values())
        found.sort(key=lambda candidate: (-candidate.score, candidate.document_id))
        return found[:k]

    def dense_scores(
        self, vector: npt.NDArray[np.float32], document_ids: Sequence[int], fingerprint: str
    ) -> Mapping[int, Candidate]:
        if self.embedder is None or not self.embedded or fingerprint != self.embedder.fingerprint:
            return {}
        known = [n for n in document_ids if n in self.items and self.items[n][0].collection not in self.bare]
        if not known:
            return {}
        vectors = self.embedder.embed_documents([self.items[number][1] for number in known])
        return {
            number: Candidate(number, float(vectors[row] @ vector), 0, len(self.items[number][1]))
            for row, number in enumerate(known)
        }

    def status(self, fingerprint: str | None) -> IndexStatus:
        total = len(self.items)
        done = sum(document.collection not in self.bare for document, _ in self.items.values())
        done = done if self.embedded and self.embedder is not None and fingerprint is not None else 0
        return IndexStatus(Path("fake.sqlite"), 0, total, done, total - done, done, done, None, fingerprint, ())

    def cached(self, key: str) -> str | None:
        return self.cache.get(key)

    def _count(self, document: StoredDocument, term: LexicalTerm) -> int:
        text = " ".join(_WORD.findall(f"{document.title} {document.path} {self.items[document.id][1]}".lower()))
        return sum(
            len(re.findall(rf"\b{re.escape(quoted)}" + ("" if star else r"(?:s|ing|ed)?\b"), text))
            for quoted, star in _QUOTED.findall(term.fts.lower())
            if quoted
        )

    def _idf(self, terms: Sequence[LexicalTerm], scope: Scope) -> list[float]:
        total = self.count_documents(scope)
        return [math.log(1 + (total - df + 0.5) / (df + 0.5)) for df in self.document_frequencies(terms, scope)]


def in_scope(document: StoredDocument, scope: Scope) -> bool:
    """Whether a document passes every condition of a scope."""
    if scope.collections is not None and document.collection not in scope.collections:
        return False
    if scope.path_prefix and not document.path.startswith(scope.path_prefix):
        return False
    return all(_passes(document, condition) for condition in scope.filters)


def _passes(document: StoredDocument, condition: MetadataFilter) -> bool:
    value = condition.value.casefold()
    if condition.field == "tag":
        tags = document.metadata.get("tags", ())
        held = value in ([tag.casefold() for tag in tags] if isinstance(tags, tuple) else [str(tags).casefold()])
    elif condition.field == "title":
        held = value in document.title.casefold()
    elif condition.field == "path":
        held = value in document.path.casefold()
    elif condition.field == "after":
        held = document.modified_at >= condition.value
    elif condition.field == "before":
        held = document.modified_at < condition.value
    else:
        held = str(document.metadata.get(condition.field, "")).casefold() == value
    return held != (condition.op == "!=")


def _one_edit(left: str, right: str) -> bool:
    if abs(len(left) - len(right)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return (
        left[start + 1 :] == right[start + 1 :]
        or left[start:] == right[start + 1 :]
        or left[start + 1 :] == right[start:]
    )


@dataclass(frozen=True)
class HashingEmbedder:
    """An `Embedder` whose vectors are normalised bags of hashed words; `synonyms` maps a word onto another one."""

    dim: int = 256
    fingerprint: str = "0123456789abcdef"
    max_tokens: int = 200
    trust: float = 1.0
    synonyms: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("embed", "hashing", "fp32", "built-in", "cpu")

    def token_starts(self, text: str) -> Sequence[int]:
        return [match.start() for match in _WORD.finditer(text)]

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in _WORD.findall(text.lower()):
                word = self.synonyms.get(word, word)
                vectors[row, int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) % self.dim] += 1
        if on_progress is not None:
            on_progress(len(texts))
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if self.failure is not None:
            raise ModelError(self.failure)
        return self.embed_documents(texts)

    def query_trust(self, text: str) -> float:
        return self.trust


@dataclass
class OverlapReranker:
    """A `Reranker` that scores the share of query words in the passage; `calls` records what it was given."""

    allowed: int | None = None
    failure: str | None = None
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("rerank", "overlap", "fp32", "built-in", "cpu")

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Sequence[float | None]:
        if self.failure is not None:
            raise ModelError(self.failure)
        self.calls.append((query, tuple(passages)))
        words = set(_WORD.findall(query.lower()))
        scores: list[float | None] = []
        for number, passage in enumerate(passages):
            late = deadline_s is not None and time.monotonic() >= deadline_s
            late = late or (is_cancelled is not None and is_cancelled())
            if late or (self.allowed is not None and number >= self.allowed):
                scores.append(None)
                continue
            scores.append(len(words & set(_WORD.findall(passage.lower()))) / max(len(words), 1))
        return scores


@dataclass
class FixedExpander:
    """An `Expander` that always proposes the same sub-queries."""

    subqueries: tuple[SubQuery, ...] = ()
    failure: str | None = None
    calls: list[str] = field(default_factory=list)

    @property
    def description(self) -> EngineDescription:
        return EngineDescription("expand", "fixed", "fp32", "built-in", "cpu")

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        if self.failure is not None:
            raise ModelError(self.failure)
        self.calls.append(query)
        return Expansion(self.subqueries)


def fake_engines(
    embedder: HashingEmbedder | None = None,
    reranker: OverlapReranker | None = None,
    expander: FixedExpander | None = None,
) -> Engines:
    """Engines from fakes; what is left out is absent."""
    return Engines(embedder, reranker, expander)
