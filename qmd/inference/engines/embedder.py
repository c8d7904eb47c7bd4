"""BERT-like encoders: token vectors for MaxSim, pooled vectors for the index, and the trust in a text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from qmd.analysis.scripts import script_of
from qmd.analysis.stopwords import language_of
from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.engines.encoder_graph import BatchRuns, EncoderGraph, read_encoder_graph
from qmd.inference.engines.pooling import pool
from qmd.inference.models.prepared import has_byte_products
from qmd.inference.models.weights import encoder_fingerprint
from qmd.inference.models.weights_choice import choose_weights
from qmd.inference.records import FolderRules, ModelRecord, Vectors
from qmd.inference.runtime.gpu_memory import GpuUse
from qmd.inference.runtime.parallel import map_bounded
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.runtime.tokenization import Tokenizer, Tokens, load_tokenizer

MAX_FOREIGN_QUERY_SHARE = 0.3
"""Share of a query's letters in scripts the model does not read, above which its vector is meaningless."""

MAX_FOREIGN_CHUNK_SHARE = 0.5
"""The same for a chunk, which is embedded if half of it can be read."""

MAX_UNKNOWN_SHARE = 0.2
"""Share of a query's tokens outside the vocabulary, above which its vector is meaningless."""

OTHER_LATIN_TRUST = 0.5
"""Trust in a Latin-script query of another language: names and loan words still match, the rest does not."""

_EXACT_SUMS = {"session.x64quantprecision": "1"}
"""On x86 without VNNI, sums of two 8-bit products saturate 16 bits; this widens them. Measured with a 12-layer INT8
encoder on AVX2: cosine to fp32 0.9994 instead of 0.9979, for 11 % more time. With VNNI nothing saturates, and the same
sums take 2.1 to 2.7 times as long."""


def sum_options() -> dict[str, str]:
    """Return session options for 8-bit INT8 weights; the built-in model's have 7 bits and need none."""
    return {} if has_byte_products() else _EXACT_SUMS


class TokenEncoder(Struct, frozen=True):
    """One open encoder with its tokenizer: texts in, token vectors out.

    Each text is one run, never padded, on a session with one thread; several texts run at the same time on `threads`
    Python threads. Measured on two cores with INT8: 1.15 times the throughput of one run over two threads. A text's
    vectors do not depend on its neighbours, as they would with dynamic quantisation of a whole batch.
    """

    session: Session
    tokenizer: Tokenizer
    graph: EncoderGraph
    context: int
    threads: int

    def encode(self, tokens: Tokens) -> Vectors:
        """Return token vectors of one text, shape (n_tokens, dim), not normalised; (1, dim) if the graph pools."""
        ids = np.array([tokens.ids], dtype=np.int64)
        found = self.session.run([self.graph.output], self.graph.feeds(ids, np.ones_like(ids)))[0][0]
        vectors: Vectors = np.atleast_2d(found).astype(np.float32, copy=False)
        return vectors


class TokenizedEmbedder:
    """Embedder methods that need only the model's record and tokenizer."""

    def __init__(self, record: ModelRecord, tokenizer: Tokenizer) -> None:
        self.record = record
        self.scale = record.scale
        self._tokenizer = tokenizer

    def token_starts(self, text: str) -> Sequence[int]:
        return self._tokenizer.token_starts(text)

    def embeds(self, text: str) -> bool:
        """Return False when most letters of a chunk are in scripts the model was not trained on."""
        return foreign_share(text, self.record.scripts) <= MAX_FOREIGN_CHUNK_SHARE

    def query_trust(self, text: str) -> float:
        """Return 0 for foreign scripts or unknown words, 0.5 for another language by its words, else near 1."""
        return 0.0 if self._tokenizer.unknown_share(text) > MAX_UNKNOWN_SHARE else trust_of(self.record, text)


class OnnxEmbedder(TokenizedEmbedder):
    """An `Embedder` over an ONNX encoder, pooled by its record's rule and L2-normalised."""

    def __init__(self, encoder: TokenEncoder, record: ModelRecord, fingerprint: str, dim: int) -> None:
        super().__init__(record, encoder.tokenizer)
        self.encoder = encoder
        self.session = encoder.session
        self.fingerprint = fingerprint
        self.dim = dim
        self.description = EngineDescription("embed", record.name, self.session.format, record.tier, self.session.got)
        self.max_tokens = record.max_tokens
        """Token budget of one chunk's body; text beyond the model's context is cut at the end."""

    @property
    def handling(self) -> tuple[str, ...]:
        """Pooling, prompts and length, each with the file or rule that sets it."""
        record, graph, rules = self.record, self.encoder.graph, self.record.rules or FolderRules()
        origins = defaultdict(lambda: "its record", rules.origins)
        how = (
            f"by the graph, output '{graph.output}'" if graph.is_pooled else f"{record.pooling} ({origins['pooling']})"
        )
        prompts = f"query {record.query_prompt!r}, document {record.document_prompt!r}"
        if not record.query_prompt and not record.document_prompt:
            prompts = "none"
        cut = "" if rules.kept_dim is None else f", the first {self.dim} dimensions"
        return (
            f"pooling: {how}{cut}",
            f"prompts: {prompts} ({origins['prompts']})",
            f"length: {record.context} tokens ({origins['length']})",
        )

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None, runs: BatchRuns | None = None
    ) -> Vectors:
        """Return vectors; `runs` are batches of another session of this model, to be used instead of its own."""
        return self._embed(texts, self.record.document_prompt, on_progress, runs)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.record.query_prompt)

    def _embed(
        self,
        texts: Sequence[str],
        prompt: str,
        on_progress: Callable[[int], None] | None = None,
        runs: BatchRuns | None = None,
    ) -> Vectors:
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        skip = self._prompt_tokens(prompt)
        encoded = [self.encoder.tokenizer.encode(prompt + text, self.encoder.context) for text in texts]
        results = self._run_singly(encoded) if runs is None else runs.run([tokens.ids for tokens in encoded])
        for done, (index, rows) in enumerate(results, start=1):
            vectors[index] = pool(rows, self.record.pooling, skip=skip, dim=self.dim)
            if on_progress is not None:
                on_progress(done)
        return vectors

    def _run_singly(self, encoded: Sequence[Tokens]) -> Iterable[tuple[int, Vectors]]:
        # Longest first: the threads then finish together.
        order = sorted(range(len(encoded)), key=lambda index: -len(encoded[index].ids))
        vectors = map_bounded(self.encoder.encode, [encoded[index] for index in order], self.encoder.threads)
        return zip(order, vectors, strict=True)

    def _prompt_tokens(self, prompt: str) -> int:
        """Return the number of leading tokens that pooling skips: 0 unless the model excludes its prompt."""
        rules = self.record.rules
        if not prompt or rules is None or rules.pools_prompt:
            return 0
        special = self.encoder.tokenizer.encode(prompt).is_special
        return len(special) - (special[-1] and len(special) > 1)


def load_embedder(
    folder: Path, record: ModelRecord, *, threads: int = 1, allow_gpu: bool = True, gpu: GpuUse | None = None
) -> OnnxEmbedder:
    """Open an encoder folder (`tokenizer.json` and the format's weights) as an embedder of `threads` texts at a time.

    Raises:
        ModelError: A file is missing or damaged, or the graph does not match the record.
    """
    # Even if the GPU may not be used: vectors belong to the file that made them, and an index would have none of the
    # other file's.
    weights = choose_weights(folder, record, allow_gpu=True)
    rules = record.rules or FolderRules()
    tokenizer = load_tokenizer(folder / "tokenizer.json", is_lower_case=rules.is_lower_case, end_token=rules.end_token)
    options = {} if record.tier == "built-in" else sum_options()
    path, format, fuse = weights.path, weights.format, not record.is_fused
    session = open_session(path, format=format, threads=1, allow_gpu=allow_gpu, fuse=fuse, options=options, gpu=gpu)
    encoder = TokenEncoder(session, tokenizer, read_encoder_graph(session), record.context, threads)
    _check_pooling(encoder.graph, record, rules, path)
    dim = int(encoder.encode(tokenizer.encode("a")).shape[-1])
    check_dim(str(path), dim, record.dim, rules.kept_dim)
    return OnnxEmbedder(encoder, record, encoder_fingerprint(folder, record, path), rules.kept_dim or dim)


def check_dim(model: str, dim: int, expected: int | None, kept: int | None) -> None:
    """Raise a ModelError for vectors of another size than the record's, or with fewer values than are to be kept."""
    if expected is not None and dim != expected:
        raise ModelError(f"model '{model}' has {dim} dimensions, expected {expected}", "qmd models verify")
    if kept is not None and kept > dim:
        hint = "correct QMD_EMBED_DIM, or 'dim' in index.yml"
        raise ModelError(f"model '{model}' has {dim} dimensions, not {kept}", hint)


def _check_pooling(graph: EncoderGraph, record: ModelRecord, rules: FolderRules, path: Path) -> None:
    """Raise a ModelError if neither qmd nor the graph computes every step behind the token vectors."""
    if not graph.is_pooled and rules.only_in_graph:
        missing = ", ".join(rules.only_in_graph)
        raise ModelError(
            f"model '{path}' needs {missing}, which qmd does not compute",
            "use an export with the output 'sentence_embedding'",
        )
    if graph.is_pooled and not rules.pools_prompt and (record.query_prompt or record.document_prompt):
        raise ModelError(
            f"model '{path}' pools its prompt's tokens, which '1_Pooling/config.json' leaves out",
            "use an export with the output 'token_embeddings'",
        )


def trust_of(record: ModelRecord, text: str) -> float:
    """Return how far the record lets a model read a query: 0 for foreign scripts, 0.5 for another language."""
    foreign, known = foreign_share(text, record.scripts), record.languages
    if foreign > MAX_FOREIGN_QUERY_SHARE:
        return 0.0
    is_foreign = known and "*" not in known and (language_of(text, 2) or known[0]) not in known
    return OTHER_LATIN_TRUST if is_foreign else 1.0 - foreign


def foreign_share(text: str, scripts: Sequence[str]) -> float:
    """Return the share of letters of `text` outside `scripts`, in [0, 1]; 0 without letters or scripts."""
    if not scripts or (text.isascii() and "LATIN" in scripts):
        return 0.0
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return 0.0
    known = sum(letter.isascii() or script_of(letter) in scripts for letter in letters)
    return 1.0 - known / len(letters)
