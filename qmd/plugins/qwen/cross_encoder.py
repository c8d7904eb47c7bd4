"""A causal cross-encoder as reranker: it reads query and passage together and returns a probability."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.records import ModelRecord
from qmd.inference.runtime.tokenization import read_json
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.chat_tokens import ChatTokenizer
from qmd.plugins.qwen.decoder_signature import read_signature
from qmd.plugins.qwen.decoding import Decoder
from qmd.plugins.qwen.kv_context import KeyValueContext
from qmd.plugins.qwen.language_models import configured_context, open_language_model
from qmd.plugins.qwen.rerank_runs import BatchRunner, PassageRunner, RerankPrompt, ScoreHead

_ROUND_CAPACITY_TO = 256
_WARM_UP_TOKENS = 64
_SPARE_TOKENS = 768
"""Tokens of a prompt by which a smaller context may shorten it: 128 are left for query, intent and passage."""
_BATCH_TOKENS = 16_384
"""Padded tokens in one run on a GPU: 30 passages of 500 tokens."""
_BATCH_TOKENS_WITH_VOCABULARY = 2048
"""The same if every position gets logits over a vocabulary: these are 620 MB in half precision."""


class SharedPrefixRunner:
    """Runner of one ending per run over the key-value tensors of the prefix, which is computed once.

    On a CPU a batch gains nothing (padding, cache misses), and the prefix is half of a short prompt.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.session = decoder.session
        self._context: KeyValueContext | None = None
        self._capacity = 0

    def run(self, prefix: Sequence[int], endings: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Any]]:
        context = self._open(len(prefix) + max(map(len, endings), default=0))
        context.restore(self._empty)
        context.append([prefix])
        after_prefix = context.checkpoint()
        for index, ending in enumerate(endings):
            context.restore(after_prefix)
            yield [index], context.append([ending])

    def _open(self, n_tokens: int) -> KeyValueContext:
        """Return an empty context of at least `n_tokens`, kept between calls."""
        if self._context is None or n_tokens > self._capacity:
            self._capacity = -(-n_tokens // _ROUND_CAPACITY_TO) * _ROUND_CAPACITY_TO
            self._context = self._decoder.open_context(self._capacity)
            self._empty = self._context.checkpoint()
        return self._context


class QwenReranker:
    """A `Reranker` over a cross-encoder graph."""

    def __init__(
        self, runner: PassageRunner, head: ScoreHead, prompt: RerankPrompt, description: EngineDescription
    ) -> None:
        self._runner = runner
        self.session = runner.session
        self._head = head
        self.prompt, self.context, self.tokenizer = prompt, prompt.context, prompt.tokenizer
        self.description = description
        # One key-value context, so one query at a time; a server calls from several threads.
        self._lock = threading.Lock()

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[float | None]:
        """Return P(relevant) of each passage, in [0, 1]; None after the deadline.

        Identical passages are scored once. A run that would outlast the deadline, judged by the pace so far, is not
        started.

        Raises:
            ModelError: If the runtime fails.
        """
        distinct = list(dict.fromkeys(passages))
        if not distinct or (deadline_s is not None and time.monotonic() >= deadline_s):
            return [None] * len(passages)
        scores: dict[str, float] = {}
        with self._lock:
            prefix = self.prompt.prefix(query, intent)
            endings = [self.prompt.ending(passage) for passage in distinct]
            last, s_per_token = time.monotonic(), math.inf
            for indexes, logits in self._runner.run(prefix, endings):
                for index, probability in zip(indexes, self._head.probabilities(logits).tolist(), strict=True):
                    if math.isnan(probability):
                        reason = f"model '{self.description.model}' returns values that are not numbers"
                        raise ModelError(reason, "qmd models verify")
                    scores[distinct[index]] = probability
                if is_cancelled is not None and is_cancelled():
                    break
                n_tokens, now = sum(len(endings[index]) for index in indexes), time.monotonic()
                # The first run includes the prefix: later ones are faster, so the best pace so far is a fair estimate.
                s_per_token = min(s_per_token, (now - last) / max(1, n_tokens))
                last = now
                if deadline_s is not None and now + s_per_token * n_tokens > deadline_s:
                    break
        return [scores.get(passage) for passage in passages]


def load_cross_encoder(folder: Path, record: ModelRecord, settings: EngineSettings) -> QwenReranker:
    """Open the reranking model of a folder.

    On a CPU a graph with key-value inputs shares the prompt's prefix, and others run one prompt at a time; on CUDA
    prompts are batched by length.

    Raises:
        ModelError: If a file is missing or damaged, or the graph is not a causal scoring model.
    """
    model = open_language_model(folder, record, settings)
    session, tokenizer = model.session, model.tokenizer
    signature = read_signature(session)
    head = _find_head(folder, tokenizer, signature.logits_width)
    runner: PassageRunner
    if session.got == "cpu" and signature.layers:
        runner = SharedPrefixRunner(Decoder(session))
    else:
        pad_id = tokenizer.token_id("<|endoftext|>")
        most = _BATCH_TOKENS if signature.logits_rank == 2 else _BATCH_TOKENS_WITH_VOCABULARY
        batch_tokens = most if session.got == "cuda" else 0
        pad_id = min(tokenizer.end_ids) if pad_id is None else pad_id
        runner = BatchRunner(session, signature, pad_id, batch_tokens)
        if session.got == "cuda":
            # The first run chooses and loads kernels, which the first query should not wait for.
            runner.logits([[pad_id] * _WARM_UP_TOKENS], "right")
    prompt = RerankPrompt(tokenizer)
    limit = configured_context(model, folder, settings, prompt.context - _SPARE_TOKENS)
    return QwenReranker(runner, head, prompt.within(limit) if limit else prompt, model.description)


def _find_head(folder: Path, tokenizer: ChatTokenizer, width: int | None) -> ScoreHead:
    if width == 2:
        labels = read_json(folder / "config.json").get("id2label") or {}
        named = {str(label).lower(): int(index) for index, label in labels.items()}
        yes = next((named[label] for label in ("yes", "relevant", "true", "label_1") if label in named), 1)
        return ScoreHead(yes, 1 - yes)
    yes_id, no_id = tokenizer.token_id("yes"), tokenizer.token_id("no")
    if width != 1 and (yes_id is None or no_id is None):
        raise ModelError(f"tokenizer in '{folder}' has no tokens 'yes' and 'no'", "fetch it again: qmd models pull")
    return ScoreHead(yes_id or 0, no_id or 0)
