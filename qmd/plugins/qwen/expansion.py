"""A language model as expander: a query comes in, typed sub-queries in its own language go out.

The prompt's fixed part is read once and kept. The lines are written as one batch of branches from the shared prompt; if
a model's answers differ in a batch, one after the other, each seeing the earlier ones. Tags are forced text; sampled
text follows `LineGrammar`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from qmd.analysis.scripts import script_of
from qmd.inference.base import EngineDescription, Expansion
from qmd.inference.records import ModelRecord, PromptStyle
from qmd.inference.settings import EngineSettings
from qmd.plugins.qwen.chat_tokens import ChatTokenizer
from qmd.plugins.qwen.decoding import Chooser, Decoder, Generation, Limits, generate_branches
from qmd.plugins.qwen.expansion_checks import check_expansions, query_scripts
from qmd.plugins.qwen.grammar import LineGrammar
from qmd.plugins.qwen.kv_context import KeyValueContext
from qmd.plugins.qwen.language_models import configured_context, open_language_model
from qmd.plugins.qwen.sampling import Sampler
from qmd.plugins.qwen.settings import DEFAULT_SAMPLING, SamplingSettings, differences, read_sampling
from qmd.records import SubQuery, SubQueryKind

_SYSTEM = (
    "You expand search queries over a collection of notes and documents. Write in the language of the query.\n"
    "lex: two to five keywords, with a synonym or related term, for full-text search\n"
    "vec: the query reworded as one clear sentence, for semantic search\n"
    "hyde: one sentence from a document that would answer the query\n"
    "Keep the query's own names and key terms. Add no comments."
)


class ExpansionPrompt(Struct, frozen=True):
    """The chat turns around a query. Neither contains the intent: models copy it into their lines."""

    header: str
    before_query: str
    footer: str


PROMPTS: Mapping[PromptStyle, ExpansionPrompt] = {
    "qwen3": ExpansionPrompt(
        f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n<|im_start|>user\n",
        "Query: ",
        # The model's own template writes the empty thinking block to switch thinking off.
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    # The fine-tune was trained on this line, with no system text, and without the empty thinking block.
    "tobi": ExpansionPrompt(
        "<|im_start|>user\n", "/no_think Expand this search query: ", "<|im_end|>\n<|im_start|>assistant\n"
    ),
}

_MAX_QUERY_TOKENS = 192
_SPARE_TOKENS = 160
"""Tokens of a query by which a smaller context may shorten it."""
_LEAST_WRITTEN, _MOST_WRITTEN = 32, 512
"""Tokens of all lines together: with fewer none is a sentence, with more they are too long (`expansion_checks`)."""
_MIN_HYDE_WORDS = 5


class Branch(Struct, frozen=True):
    """One line to write and its budget."""

    kind: SubQueryKind
    max_tokens: int


class ExpanderOptions(Struct, frozen=True):
    """Lines to write, and whether as a batch."""

    branches: tuple[Branch, ...] = (Branch("lex", 16), Branch("lex", 16), Branch("vec", 28), Branch("hyde", 48))
    """The longest branch decides the cost of a batch: beyond 48 tokens of hyde it no longer pays."""
    mode: Literal["batched", "sequential"] = "batched"
    """A batch costs less: on a CPU a step for four rows takes 1.6 times as long as for one."""


class QwenExpander:
    """An `Expander` over a decoder."""

    def __init__(
        self,
        decoder: Decoder,
        tokenizer: ChatTokenizer,
        description: EngineDescription,
        options: ExpanderOptions = ExpanderOptions(),
        sampling: SamplingSettings = DEFAULT_SAMPLING,
        prompt: ExpansionPrompt = PROMPTS["qwen3"],
    ) -> None:
        self._decoder = decoder
        self.tokenizer = tokenizer
        self.description = description
        self.session = decoder.session
        self._sampling, self._options, self._prompt = sampling, options, prompt
        self._spellings = tokenizer.token_bytes()
        self._breakers = self._tokens_with(sampling.dry_breakers) if sampling.dry_multiplier else frozenset()
        self._grammar = LineGrammar(self._spellings, tokenizer.end_ids)
        self._newline = tokenizer.encode_template("\n")
        self._tags = {branch.kind: tokenizer.encode_template(f"{branch.kind}:") for branch in self._options.branches}
        self._header = tokenizer.encode_template(prompt.header)
        self._footer = tokenizer.encode_template(prompt.footer)
        written = sum(branch.max_tokens + 8 for branch in self._options.branches)
        self._fixed = len(self._header) + len(self._footer) + written + 16
        self.context = self._fixed + _MAX_QUERY_TOKENS
        """Most tokens of prompt and lines, the size of the key-value cache; the query gets the rest."""
        self._context: KeyValueContext | None = None
        # One key-value context, so one expansion at a time; a server calls from several threads.
        self._lock = threading.Lock()

    @property
    def drawing(self) -> Mapping[str, str]:
        """Sampling settings that are not neutral: setting → value."""
        return differences(self._sampling, SamplingSettings())

    @property
    def handling(self) -> tuple[str, ...]:
        """A line with the reason why lines are not written as a batch, if the options ask for one."""
        refusal = None if self._options.mode == "sequential" else self._decoder.branches_refusal
        return () if refusal is None else (f"lines are written one after the other, not together: {refusal}",)

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        """Return validated sub-queries in the query's own language; empty when none is valid.

        Lines that the deadline or a cancellation cut short are among the dropped, with that reason.

        Raises:
            ModelError: If the runtime fails.
        """
        if not query.strip():
            return Expansion(())
        if deadline_s is not None and time.monotonic() >= deadline_s:
            return Expansion((), ((query, "no time was left for expansion"),))
        limits = Limits(deadline_s, is_cancelled)
        with self._lock:
            choosers = self._choosers(query)
            context = self._read_prompt(query)
            is_batch = self._options.mode == "batched" and self._decoder.branches_refusal is None
            results = (self._write_batched if is_batch else self._write_serial)(context, choosers, limits)
        proposed, cut = self._read_lines(results)
        checked = check_expansions(query, proposed, intent=intent)
        return replace(checked, dropped=(*checked.dropped, *cut))

    def _read_prompt(self, query: str) -> KeyValueContext:
        """Return the context after the prompt, without its last tokens' logits (the first tag gives those)."""
        context = self._context
        if context is None:
            context = self._decoder.open_context(self.context)
            context.append([self._header])
            self._context, self._after_header = context, context.checkpoint()
        context.restore(self._after_header)
        user = self.tokenizer.encode_text(f"{self._prompt.before_query}{query.strip()}")[: self.context - self._fixed]
        context.append([[*user, *self._footer]])
        return context

    def _choosers(self, query: str) -> list[Chooser]:
        wanted = query_scripts(query)
        first = self._grammar.starting_in(wanted) if wanted else None
        rows = self._grammar.writing_in(frozenset(filter(None, map(script_of, query))))
        rows = rows if first is None else rows | first
        if self.session.head is not None:
            self.session.head.choose(rows)
        settings, allowed = self._sampling, self._grammar.allowed

        def chooser(index: int) -> Chooser:
            # Rows of a batch start alike: each needs its own random state.
            seed = None if settings.seed is None else settings.seed + index
            sampler = Sampler(replace(settings, seed=seed), self._breakers)
            return lambda logits, generated: sampler.choose(logits, generated, allowed(generated, first) & rows)

        return [chooser(index) for index in range(len(self._options.branches))]

    def _tokens_with(self, texts: Sequence[str]) -> frozenset[int]:
        """Return the tokens whose spelling contains one of the texts."""
        wanted = [text.encode("utf-8", "replace") for text in texts if text]
        spelled = ((token, spelling) for token, spelling in enumerate(self._spellings) if spelling)
        return frozenset(token for token, spelling in spelled if any(text in spelling for text in wanted))

    def _write_serial(self, context: KeyValueContext, choosers: Sequence[Chooser], limits: Limits) -> list[Generation]:
        results: list[Generation] = []
        unread: list[int] = []
        for branch, choose in zip(self._options.branches, choosers, strict=True):
            if results and limits.stop_reason():
                break
            logits = context.append([[*unread, *self._tags[branch.kind]]])
            before = context.lengths[0]
            budget, ends = [branch.max_tokens], self._grammar.end_ids
            (result,) = generate_branches(context, logits, [choose], ends, budget, limits)
            results.append(result)
            unread = [*result.tokens[context.lengths[0] - before :], *self._newline]
        return results

    def _write_batched(self, context: KeyValueContext, choosers: Sequence[Chooser], limits: Limits) -> list[Generation]:
        branches = self._options.branches
        budgets = [branch.max_tokens for branch in branches]
        forked, logits = context.fork([self._tags[branch.kind] for branch in branches], max(budgets))
        return generate_branches(forked, logits, choosers, self._grammar.end_ids, budgets, limits)

    def _read_lines(self, results: Sequence[Generation]) -> tuple[list[SubQuery], list[tuple[str, str]]]:
        """Return finished lines, and those cut short with the reason."""
        lines: list[SubQuery] = []
        cut: list[tuple[str, str]] = []
        for branch, result in zip(self._options.branches, results, strict=False):
            words = self.tokenizer.decode(result.tokens, self._spellings).split()
            # The budget may end within a word.
            text = " ".join(words[:-1] if result.stop == "budget" and len(words) > 2 else words)
            is_sentence = branch.kind == "hyde" and len(text.split()) >= _MIN_HYDE_WORDS
            if is_sentence or result.stop in ("end", "budget"):
                lines.append(SubQuery(branch.kind, text, len(lines) + 1))
            else:
                cut.append((text, "cut short by the time limit" if result.stop == "deadline" else "cancelled"))
        return lines, cut


def load_expander(
    folder: Path, record: ModelRecord, settings: EngineSettings, options: ExpanderOptions = ExpanderOptions()
) -> QwenExpander:
    """Open the expansion model of a folder.

    Raises:
        ModelError: If a file is missing or damaged, or the graph is not a decoder this code can drive.
    """
    model = open_language_model(folder, record, settings)
    prompt = PROMPTS[record.prompt_style]
    sampling = read_sampling(settings.sampling)
    whole = sum(branch.max_tokens for branch in options.branches)
    limit = settings.number("generate.max_tokens", _LEAST_WRITTEN, _MOST_WRITTEN) or whole
    lines = (replace(branch, max_tokens=branch.max_tokens * limit // whole) for branch in options.branches)
    options = replace(options, branches=tuple(lines))
    expander = QwenExpander(Decoder(model.session), model.tokenizer, model.description, options, sampling, prompt)
    least = expander.context - _SPARE_TOKENS
    expander.context = configured_context(model, folder, settings, least) or expander.context
    return expander
