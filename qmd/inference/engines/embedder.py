"""BERT-like encoders: token vectors for MaxSim, pooled vectors for the index, and how far a text can be trusted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from qmd.analysis.scripts import script_of
from qmd.analysis.stopwords import ENGLISH, stop_words_of
from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.models.catalogue import ModelRecord, Pooling
from qmd.inference.models.fingerprints import encoder_fingerprint
from qmd.inference.models.weights_choice import choose_weights
from qmd.inference.runtime.sessions import Session, open_session
from qmd.inference.runtime.tokenization import Tokenizer, Tokens, load_tokenizer

if TYPE_CHECKING:
    from concurrent.futures import Future

MAX_FOREIGN_QUERY_SHARE = 0.3
"""Share of a query's letters in scripts the model does not read, above which its vector means nothing."""

MAX_FOREIGN_CHUNK_SHARE = 0.5
"""The same for a chunk, which is embedded as long as half of it can be read."""

MAX_UNKNOWN_SHARE = 0.2
"""Share of a query's tokens outside the vocabulary, above which its vector means nothing."""

OTHER_LATIN_TRUST = 0.5
"""Trust in a Latin-script query of another language: names and loan words still match, the rest does not."""

_EXACT_SUMS = {"session.x64quantprecision": "1"}
"""On x86 without VNNI, sums of two 8-bit products saturate 16 bits; this widens them. Measured with a 12-layer INT8
encoder on AVX2: cosine to fp32 0.9994 instead of 0.9979, for 11 % more time; no effect with VNNI. The built-in
model's weights have 7 bits for the same reason and need no help.
"""


class TokenEncoder:
    """One open encoder with its tokenizer: texts in, token vectors out.

    Each text is one run, never padded, on a session with one thread; several texts run at the same time on `threads`
    Python threads. Measured on two cores with INT8: 1.15 times the throughput of one run over two threads, and a text's
    vectors do not depend on its neighbours, which dynamic quantisation of a whole batch would bring about.
    """

    def __init__(self, session: Session, tokenizer: Tokenizer, context: int, threads: int = 1) -> None:
        self.session = session
        self.tokenizer = tokenizer
        self.context = context
        self.threads = threads
        self._inputs = {node.name for node in session.ort.get_inputs()}
        if "input_ids" not in self._inputs:
            raise ModelError(f"model '{session.name}' has no 'input_ids' input", "is it an embedding model?")
        outputs = [node.name for node in session.ort.get_outputs()]
        self._output = "last_hidden_state" if "last_hidden_state" in outputs else outputs[0]

    def encode(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Token vectors of one text, shape (n_tokens, dim), not normalised."""
        ids = np.array([tokens.ids], dtype=np.int64)
        feeds = {"input_ids": ids}
        if "attention_mask" in self._inputs:
            feeds["attention_mask"] = np.ones_like(ids)
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(ids)
        vectors: npt.NDArray[np.float32] = self.session.run([self._output], feeds)[0][0].astype(np.float32, copy=False)
        return vectors

    def encode_all(self, batch: Sequence[Tokens]) -> Generator[npt.NDArray[np.float32], None, None]:
        """Token vectors of each text in the order given, a few texts ahead of the consumer at most."""
        if len(batch) == 1 or self.threads == 1:
            yield from map(self.encode, batch)
            return
        # 7 ms, which a search by vector alone is spared.
        from concurrent.futures import ThreadPoolExecutor

        waiting: deque[Future[npt.NDArray[np.float32]]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            # One text ahead of the threads and no more: a deadline or Ctrl-C then waits for texts begun alone.
            try:
                for tokens in batch:
                    waiting.append(pool.submit(self.encode, tokens))
                    if len(waiting) > self.threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


class OnnxEmbedder:
    """An `Embedder` over any BERT-like ONNX encoder: mean over tokens, L2-normalised."""

    def __init__(self, encoder: TokenEncoder, record: ModelRecord, fingerprint: str, dim: int) -> None:
        self.encoder = encoder
        self._record = record
        self.session = encoder.session
        self.fingerprint = fingerprint
        """See `encoder_fingerprint`."""
        self.dim = dim
        """Length of a vector."""
        self.description = EngineDescription(
            "embed", record.name, encoder.session.format, record.tier, encoder.session.got
        )
        self.max_tokens = record.max_tokens
        """Token budget of one chunk's body; what exceeds the model's context with its names is cut at the end."""

    def token_starts(self, text: str) -> Sequence[int]:
        """Code-point offset of the first character of every token of `text`, ascending."""
        return self.encoder.tokenizer.token_starts(text)

    def embed_documents(
        self, texts: Sequence[str], on_progress: Callable[[int], None] | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of document texts, shape (len(texts), dim), in the order given."""
        return self._embed(texts, self._record.document_prompt, on_progress)

    def embed_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Vectors of queries, shape (len(texts), dim)."""
        return self._embed(texts, self._record.query_prompt, None)

    def embeds(self, text: str) -> bool:
        """False when most letters of a chunk are in scripts the model was not trained on."""
        return foreign_share(text, self._record.scripts) <= MAX_FOREIGN_CHUNK_SHARE

    def query_trust(self, text: str) -> float:
        """0 for foreign scripts or unknown words, 0.5 for another Latin-script language, else near 1."""
        foreign = foreign_share(text, self._record.scripts)
        if foreign > MAX_FOREIGN_QUERY_SHARE or self.encoder.tokenizer.unknown_share(text) > MAX_UNKNOWN_SHARE:
            return 0.0
        if self._record.languages == ("en",) and is_other_latin(text):
            return OTHER_LATIN_TRUST
        return 1.0 - foreign

    def _embed(
        self, texts: Sequence[str], prompt: str, on_progress: Callable[[int], None] | None
    ) -> npt.NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        encoded = [self.encoder.tokenizer.encode(prompt + text, self.encoder.context) for text in texts]
        # Longest first: the threads then finish together.
        order = sorted(range(len(texts)), key=lambda index: -len(encoded[index].ids))
        results = self.encoder.encode_all([encoded[index] for index in order])
        for done, (index, token_vectors) in enumerate(zip(order, results, strict=True), start=1):
            vectors[index] = pool(token_vectors, self._record.pooling)
            if on_progress is not None:
                on_progress(done)
        return vectors


def load_embedder(folder: Path, record: ModelRecord, *, threads: int = 1, allow_gpu: bool = True) -> OnnxEmbedder:
    """Open an encoder folder (`tokenizer.json` and the format's weights) as an embedder of `threads` texts at a time.

    Raises:
        ModelError: A file is missing or damaged, or the graph is not the encoder the record describes.
    """
    # On a CPU even where CUDA works: INT8 is made for it.
    weights = choose_weights(folder, record, allow_gpu=False)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    options = {} if record.tier == "built-in" else _EXACT_SUMS
    session = open_session(
        weights.path, format=weights.format, threads=1, allow_gpu=allow_gpu, fuse=not record.is_fused, options=options
    )
    encoder = TokenEncoder(session, tokenizer, record.context, threads)
    dim = int(encoder.encode(tokenizer.encode("a")).shape[-1])
    if record.dim is not None and dim != record.dim:
        raise ModelError(f"model '{weights.path}' has {dim} dimensions, expected {record.dim}", "qmd models verify")
    return OnnxEmbedder(encoder, record, encoder_fingerprint(folder, record, weights.path), dim)


def pool(token_vectors: npt.NDArray[np.float32], pooling: Pooling) -> npt.NDArray[np.float32]:
    """One L2-normalised vector, (n_tokens, dim) → (dim,): the mean over all tokens, or the first or last token's."""
    ends = {"first": 0, "last": -1}
    pooled = token_vectors[ends[pooling]] if pooling in ends else token_vectors.mean(axis=0)
    result: npt.NDArray[np.float32] = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
    return result


def foreign_share(text: str, scripts: Sequence[str]) -> float:
    """Share of the letters of `text` whose script is not among `scripts`, in [0, 1]; 0 without letters or scripts."""
    if not scripts or (text.isascii() and "LATIN" in scripts):
        return 0.0
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return 0.0
    known = sum(letter.isascii() or script_of(letter) in scripts for letter in letters)
    return 1.0 - known / len(letters)


def is_other_latin(text: str) -> bool:
    """True when a Latin-script text reads as another language than English.

    Two or more signs, and more of them than English function words: function words of one other language, and words
    with accented letters. `naïve Bayes` and `die hard` stay English.
    """
    words = ["".join(filter(str.isalnum, word)) for word in text.lower().split()]
    stops = stop_words_of(words)
    signs = sum((word in stops and word not in ENGLISH) or not word.isascii() for word in words)
    return signs >= 2 and signs > sum(word in ENGLISH for word in words)
