"""A causal cross-encoder as reranker: query and passage go through the model together, a probability comes out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import ModelError
from qmd.inference.base import EngineDescription
from qmd.inference.engines.rerank_runs import BatchRunner, PassageRunner, ScoreHead, SharedPrefixRunner
from qmd.inference.runtime.chat_tokens import ChatTokenizer, load_chat_tokenizer, read_json
from qmd.inference.runtime.decoder_signature import read_signature
from qmd.inference.runtime.decoding import Decoder
from qmd.quick_dataclasses import dataclass

if TYPE_CHECKING:
    from qmd.inference.models.catalogue import ModelRecord
    from qmd.inference.runtime.sessions import Session
    from qmd.inference.settings import EngineSettings

# The official prompt of Qwen3-Reranker; without it the scores are close to random.
_PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct"
    ' provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
_INSTRUCT = "Given a web search query, retrieve relevant passages that answer the query"
_PAD_TOKEN = "<|endoftext|>"


@dataclass(frozen=True, slots=True)
class RerankOptions:
    """How to rerank."""

    instruct: str = _INSTRUCT
    max_query_tokens: int = 192
    """For the query, and again for the intent."""
    max_passage_tokens: int = 512
    """Longer passages lose their end; prompt and query never do."""
    batch_tokens: int = 16_384
    """Padded tokens in one run on a GPU: 30 passages of 500 tokens."""


class QwenReranker:
    """The Reranker over a cross-encoder graph.

    Args:
        runner: How the graph is run.
        head: What its logits mean.
        tokenizer: Its tokenizer.
        description: What to call it.
        options: How to rerank.
    """

    def __init__(
        self,
        runner: PassageRunner,
        head: ScoreHead,
        tokenizer: ChatTokenizer,
        description: EngineDescription,
        options: RerankOptions | None = None,
    ) -> None:
        self._runner = runner
        self._head = head
        self._tokenizer = tokenizer
        self._description = description
        self._options = options or RerankOptions()
        # One key-value context, so one query at a time; a server calls from several threads.
        self._lock = threading.Lock()

    @property
    def description(self) -> EngineDescription:
        """What runs."""
        return self._description

    @property
    def session(self) -> Session:
        """The open model."""
        return self._runner.session

    def score(
        self,
        query: str,
        passages: Sequence[str],
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> list[float | None]:
        """P(relevant) of each passage, in [0, 1]; None where the deadline came first.

        Identical passages are scored once. A run that would outlast the deadline, judged by the pace so far, is not
        begun.

        Raises:
            ModelError: If the runtime fails.
        """
        distinct = list(dict.fromkeys(passages))
        scores: dict[str, float] = {}
        if distinct and not _is_over(deadline_s):
            with self._lock:
                scores = self._score_distinct(query, distinct, intent, deadline_s, is_cancelled or (lambda: False))
        return [scores.get(passage) for passage in passages]

    def prefix_tokens(self, query: str, intent: str | None = None) -> list[int]:
        """The prompt up to the passage: the same for every passage of a query."""
        return _prefix_tokens(self._tokenizer, query, intent, self._options)

    def ending_tokens(self, passage: str) -> list[int]:
        """The passage, cut to its budget, and the rest of the prompt."""
        return _ending_tokens(self._tokenizer, passage, self._options)

    def _score_distinct(
        self,
        query: str,
        passages: Sequence[str],
        intent: str | None,
        deadline_s: float | None,
        is_cancelled: Callable[[], bool],
    ) -> dict[str, float]:
        prefix = self.prefix_tokens(query, intent)
        endings = [self.ending_tokens(passage) for passage in passages]
        scores: dict[str, float] = {}
        pace = _Pace(deadline_s)
        for indexes, logits in self._runner.run(prefix, endings):
            for index, probability in zip(indexes, self._head.probabilities(logits).tolist(), strict=True):
                if math.isnan(probability):
                    raise ModelError(f"model '{self._description.model}' returns no numbers", "qmd models verify")
                scores[passages[index]] = probability
            if is_cancelled() or pace.leaves_no_time(sum(len(endings[index]) for index in indexes)):
                break
        return scores


def prompt_tokens(
    tokenizer: ChatTokenizer, query: str, passage: str, options: RerankOptions
) -> tuple[list[int], list[int]]:
    """The official prompt in two parts: what all passages of a query share, and the rest."""
    return _prefix_tokens(tokenizer, query, None, options), _ending_tokens(tokenizer, passage, options)


def _prefix_tokens(tokenizer: ChatTokenizer, query: str, intent: str | None, options: RerankOptions) -> list[int]:
    limit, instruct = options.max_query_tokens, options.instruct
    if intent and intent.strip():
        instruct = f"{instruct}. The user's intent: {tokenizer.shorten(intent.strip(), limit)}"
    # One string, as in training: a word's token includes the space before it, a mark's the line break after it.
    user = f"<Instruct>: {instruct}\n<Query>: {tokenizer.shorten(query.strip(), limit)}\n<Document>:"
    return [*tokenizer.encode_template(_PREFIX), *tokenizer.encode_template(user)]


def _ending_tokens(tokenizer: ChatTokenizer, passage: str, options: RerankOptions) -> list[int]:
    passage_tokens = tokenizer.encode_text(f" {passage.strip()}")[: options.max_passage_tokens]
    return [*passage_tokens, *tokenizer.encode_template(_SUFFIX)]


class _Pace:
    """Whether another run like the last one would end before the deadline."""

    def __init__(self, deadline_s: float | None) -> None:
        self._deadline_s = deadline_s
        self._last = time.monotonic()
        self._s_per_token = math.inf

    def leaves_no_time(self, n_tokens: int) -> bool:
        """Note a run of `n_tokens` that has just ended; True when the next one is not to begin."""
        if self._deadline_s is None:
            return False
        now = time.monotonic()
        # The first run includes the prefix: later ones are faster, so the best pace so far is the honest guess.
        self._s_per_token = min(self._s_per_token, (now - self._last) / max(1, n_tokens))
        self._last = now
        return now + self._s_per_token * n_tokens > self._deadline_s


def _is_over(deadline_s: float | None) -> bool:
    return deadline_s is not None and time.monotonic() >= deadline_s


def load_cross_encoder(
    folder: Path,
    settings: EngineSettings,
    options: RerankOptions | None = None,
    *,
    record: ModelRecord | None = None,
) -> QwenReranker:
    """Open the reranking model of a folder.

    On a CPU a graph with key-value inputs shares the prompt's prefix, and others run one prompt at a time; on CUDA
    prompts are batched by length.

    Raises:
        ModelError: If a file is missing or damaged, or the graph is not a causal scoring model.
    """
    from qmd.inference.models.catalogue import full_model
    from qmd.inference.models.weights_choice import choose_weights
    from qmd.inference.runtime.sessions import open_session

    options = options or RerankOptions()
    record = record or full_model("rerank")
    weights = choose_weights(folder, record, allow_gpu=settings.gpu_allowed)
    tokenizer = load_chat_tokenizer(folder)
    session = open_session(
        weights.path, format=weights.format, threads=settings.usable_threads, allow_gpu=settings.gpu_allowed
    )
    signature = read_signature(session)
    head = _find_head(folder, tokenizer, _logit_width(session.ort.get_outputs(), signature.logits))
    runner: PassageRunner
    if session.got == "cpu" and signature.layers:
        runner = SharedPrefixRunner(Decoder(session))
    else:
        pad_id = tokenizer.token_id(_PAD_TOKEN)
        # Logits over a vocabulary at every position fill memory quickly: 2,048 tokens are 620 MB in half precision.
        limit = options.batch_tokens if signature.logits_rank == 2 else min(options.batch_tokens, 2048)
        batch_tokens = limit if session.got == "cuda" else 0
        runner = BatchRunner(
            session, signature, min(tokenizer.end_ids) if pad_id is None else pad_id, batch_tokens=batch_tokens
        )
    description = EngineDescription("rerank", record.name, weights.format, record.tier, session.got)
    return QwenReranker(runner, head, tokenizer, description, options)


def _logit_width(outputs: Sequence[object], name: str) -> int | None:
    """Last dimension of the logits; None where the graph does not state it."""
    shape = next(output.shape for output in outputs if output.name == name)  # type: ignore[attr-defined]
    return shape[-1] if isinstance(shape[-1], int) else None


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
