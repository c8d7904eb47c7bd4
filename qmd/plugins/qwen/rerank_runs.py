"""A cross-encoder's prompt, its runs in padded batches, and its head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from qmd.batching import batches
from qmd.errors import ModelError
from qmd.inference.runtime.gpu_memory import OutOfMemory
from qmd.inference.runtime.sessions import Session, open_session
from qmd.plugins.qwen.chat_tokens import ChatTokenizer, load_chat_tokenizer
from qmd.plugins.qwen.decoder_signature import DecoderSignature, read_signature

Side = Literal["right", "left"]

# The official prompt of Qwen3-Reranker; without it the scores are close to random.
_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
    ' provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"

_WINDOW = 64
"""Prompts sorted by length at a time, so that the most promising windows come first."""
_PADDING_TOLERANCE = 0.05
"""Largest relative change of a logit that still counts as rounding when a row is padded."""


class ScoreHead(Struct, frozen=True):
    """The step from the logits of a prompt's last token to a probability of relevance.

    `yes` and `no` are columns: of the vocabulary, or of a head with two labels. A head with one ignores them.
    """

    yes: int
    no: int

    def probabilities(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Return P(yes) in [0, 1], shape (batch,), from logits (batch, 1), (batch, 2) or (batch, vocabulary)."""
        width = logits.shape[1]
        margin = logits[:, 0] if width == 1 else logits[:, self.yes] - logits[:, self.no]
        # The two halves of tanh never overflow, as exp would for logits beyond 700.
        result: npt.NDArray[np.float64] = 0.5 + 0.5 * np.tanh(0.5 * margin.astype(np.float64))
        return result


class RerankPrompt(Struct, frozen=True):
    """The official prompt as tokens, in two parts: the part shared by all passages of a query, and the rest."""

    tokenizer: ChatTokenizer
    max_query_tokens: int = 192
    """Most tokens of the query, and again of the intent."""
    max_passage_tokens: int = 512
    """Longer passages are cut at the end; prompt and query never are."""

    @property
    def context(self) -> int:
        """Tokens of the longest prompt, with a few spare ones for the border of its parts."""
        fixed = len(self.prefix("", "a")) + len(self.ending("")) + 8
        return fixed + 2 * self.max_query_tokens + self.max_passage_tokens

    def within(self, context: int) -> RerankPrompt:
        """Return a prompt of at most `context` tokens, with at most a quarter each for the query and the intent."""
        texts = 2 * self.max_query_tokens + self.max_passage_tokens + context - self.context
        most = min(self.max_query_tokens, texts // 4)
        return replace(self, max_query_tokens=most, max_passage_tokens=texts - 2 * most)

    def prefix(self, query: str, intent: str | None = None) -> list[int]:
        """Return the prompt up to the passage."""
        instruct = _INSTRUCT
        if intent and intent.strip():
            instruct = f"{instruct}. The user's intent: {self.tokenizer.shorten(intent.strip(), self.max_query_tokens)}"
        query = self.tokenizer.shorten(query.strip(), self.max_query_tokens)
        # One string, as in training: a word's token includes the space before it, a mark's the line break after it.
        user = f"<Instruct>: {instruct}\n<Query>: {query}\n<Document>:"
        return [*self.tokenizer.encode_template(_PREFIX), *self.tokenizer.encode_template(user)]

    def ending(self, passage: str) -> list[int]:
        """Return the passage, cut to its budget, and the rest of the prompt."""
        passage_tokens = self.tokenizer.encode_text(f" {passage.strip()}")[: self.max_passage_tokens]
        return [*passage_tokens, *self.tokenizer.encode_template(_SUFFIX)]


def prompt_logits(
    folder: Path, graph: Path, format: str, pairs: Iterable[tuple[str, str]], threads: int | None
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the logits of each prompt's last token, shape (1, width), each prompt run alone on the CPU.

    Args:
        folder: Folder of the tokenizer.

    Raises:
        ModelError: If a file is damaged, or the graph is not that of a decoder.
    """
    prompt = RerankPrompt(load_chat_tokenizer(folder))
    session = open_session(graph, format=format, threads=threads, allow_gpu=False)
    runner = BatchRunner(session, read_signature(session), 0, batch_tokens=0)
    for query, passage in pairs:
        yield runner.logits([[*prompt.prefix(query), *prompt.ending(passage)]], "right")


class PassageRunner(Protocol):
    """A way to run a prompt's prefix with several endings."""

    session: Session

    def run(self, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any]]:
        """Yield (indexes into `endings`, logits of their last tokens) until all are done.

        The caller may stop early; results come in the order of `endings`, as far as batches allow.
        """


class BatchRunner:
    """Whole prompts in batches of similar length, at most `batch_tokens` padded tokens in a run.

    Before the first batch of unequal lengths the graph is tested: if padding changes the logits on both sides, only
    prompts of equal length share a run.

    Args:
        pad_id: Token of padded places; some heads find the last token by it.
        batch_tokens: 0 runs every prompt alone.
    """

    def __init__(self, session: Session, signature: DecoderSignature, pad_id: int, batch_tokens: int) -> None:
        self.session = session
        self._signature = signature
        self._pad_id = pad_id
        self._batch_tokens = batch_tokens
        self._side: Side | None = None
        self._is_tried = False

    def run(self, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any]]:
        prompts = [[*prefix, *ending] for ending in endings]
        for indexes in batches(range(len(prompts)), _WINDOW):
            for batch in self._batches(prompts, indexes):
                yield from self._run(prompts, batch)

    def _run(self, prompts: Sequence[Sequence[int]], batch: list[int]) -> Iterator[tuple[list[int], Any]]:
        """Run one batch, in halves if it does not fit in the device's memory; later batches stay as small."""
        try:
            logits = self.logits([prompts[index] for index in batch], self._side or "right")
        except OutOfMemory:
            if len(batch) == 1:
                raise
        else:
            yield batch, logits
            return
        half = len(batch) // 2
        self._batch_tokens = min(self._batch_tokens, (len(batch) - half) * len(prompts[batch[-1]]))
        for part in (batch[:half], batch[half:]):
            yield from self._run(prompts, part)

    def _batches(self, prompts: Sequence[Sequence[int]], indexes: Sequence[int]) -> Iterator[list[int]]:
        if not self._batch_tokens:
            yield from ([index] for index in indexes)
            return
        batch: list[int] = []
        for index in sorted(indexes, key=lambda index: len(prompts[index])):
            length = len(prompts[index])
            is_unequal = bool(batch) and length != len(prompts[batch[0]])
            if is_unequal and not self._is_tried:
                self._try_padding(prompts[batch[0]], prompts[index])
            is_full = (len(batch) + 1) * length > self._batch_tokens
            if batch and (is_full or (is_unequal and self._side is None)):
                yield batch
                batch = []
            batch.append(index)
        if batch:
            yield batch

    def _try_padding(self, shorter: Sequence[int], longer: Sequence[int]) -> None:
        self._is_tried = True
        expected = self.logits([shorter], "right")[0]
        sides: tuple[Side, Side] = ("right", "left")
        for side in sides:
            try:
                got = self.logits([shorter, longer], side)[0]
            except ModelError:
                continue
            if np.abs(got - expected).max() <= _PADDING_TOLERANCE * max(1.0, float(np.abs(expected).max())):
                self._side = side
                return

    def logits(self, rows: Sequence[Sequence[int]], side: Side) -> npt.NDArray[np.float32]:
        """Return the logits of each prompt's last token, shape (batch, width)."""
        signature, width = self._signature, max(map(len, rows))
        ids = np.full((len(rows), width), self._pad_id, signature.id_dtype)
        mask = np.zeros_like(ids)
        for index, row in enumerate(rows):
            start = width - len(row) if side == "left" else 0
            ids[index, start : start + len(row)] = row
            mask[index, start : start + len(row)] = 1
        feeds: dict[str, Any] = {"input_ids": ids}
        if signature.has_mask:
            feeds["attention_mask"] = mask
        if signature.has_positions:
            feeds["position_ids"] = np.maximum(np.cumsum(mask, axis=1) - 1, 0).astype(ids.dtype)
        if signature.keep_input is not None:
            feeds[signature.keep_input] = np.array(1 if side == "left" else width, np.int64)
        empty = np.zeros((len(rows), signature.kv_heads, 0, signature.head_size), signature.kv_dtype)
        feeds.update(dict.fromkeys(signature.past, empty))
        logits = self.session.run([signature.logits], feeds)[0]
        if logits.ndim == 3:
            is_last_only = logits.shape[1] == 1 or side == "left"
            last = [-1 if is_last_only else len(row) - 1 for row in rows]
            logits = logits[np.arange(len(rows)), last]
        if logits.ndim != 2 or len(logits) != len(rows):
            raise ModelError(f"model '{self.session.name}' returns logits of shape {list(logits.shape)}")
        result: npt.NDArray[np.float32] = logits.astype(np.float32)
        return result
