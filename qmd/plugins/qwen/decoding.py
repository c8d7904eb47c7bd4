"""The decode loop: read a prompt once, then one token a step, until an end token, a limit or a cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from qmd.errors import ModelError
from qmd.inference.runtime.sessions import Session
from qmd.plugins.qwen.decoder_signature import read_signature
from qmd.plugins.qwen.kv_context import GrowingContext, InPlaceContext, KeyValueContext

StopReason = Literal["end", "budget", "deadline", "cancelled"]
Chooser = Callable[["npt.NDArray[np.float32]", Sequence[int]], int]
"""(logits of shape (vocabulary,), tokens generated so far) → next token."""

_PROBE_TOKENS = ((1, 2, 3), (4, 5))
_PROBE_TOLERANCE = 0.02
"""Largest difference, in standard deviations of the logits, that counts as the same result. The compared ways differ
only in rounding (about 1e-5 in fp32, 5e-3 in fp16); a wrong mask or position moves logits by whole deviations."""

_ALIKE, _LEAST_ALIKE = 0.999, 0.99
"""Correlation of logits from which a row of a batch counts as the row alone. 8-bit products reach 0.9998, as does the
same row read in one run and token by token; if these two differ by more, a batch may too, down to the second."""


class Limits(Struct, frozen=True):
    """External limits of a generation."""

    deadline_s: float | None = None
    """A `time.monotonic` value."""
    is_cancelled: Callable[[], bool] | None = None

    def stop_reason(self) -> StopReason | None:
        """Return the reason to stop before the next step; None to continue."""
        if self.is_cancelled is not None and self.is_cancelled():
            return "cancelled"
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            return "deadline"
        return None


class Generation(Struct, frozen=True):
    """Tokens, without the end token, and the reason for their end."""

    tokens: tuple[int, ...]
    stop: StopReason


class Decoder:
    """A causal model over a session.

    Opening one runs the graph twice on a few tokens: to test whether its key-value tensors can be updated in place, and
    to pay for the first run, which is always slow.

    Args:
        in_place: False never binds a tensor as past and as present, even if that works.

    Raises:
        ModelError: If the graph is not a causal model with key-value tensors.
    """

    def __init__(self, session: Session, *, in_place: bool = True) -> None:
        self.session = session
        self.signature = read_signature(session)
        if not self.signature.layers:
            raise ModelError(f"model '{session.name}' takes no key-value tensors, so it cannot decode step by step")
        self.in_place = in_place and self._in_place_works()

    def open_context(self, capacity: int, *, batch: int = 1) -> KeyValueContext:
        """Return an empty context; `capacity` in tokens per row binds only in-place contexts."""
        if self.in_place:
            return InPlaceContext(self.session, self.signature, batch, capacity)
        return GrowingContext(self.session, self.signature, batch)

    def _in_place_works(self) -> bool:
        growing = GrowingContext(self.session, self.signature, 1)
        expected = [growing.append([tokens]) for tokens in _PROBE_TOKENS]
        if not any(operator == "GroupQueryAttention" for _, operator in self.session.operators()):
            return False
        shared = InPlaceContext(self.session, self.signature, 1, 16)
        try:
            got = [shared.append([tokens]) for tokens in _PROBE_TOKENS]
        except ModelError:
            return False
        return all(_agree(a, b) for a, b in zip(expected, got, strict=True))

    @cached_property
    def branches_refusal(self) -> str | None:
        """Reason why rows may not be continued as a batch, tried once; None if they may.

        8-bit products round the same row differently in one run and token by token; a batch may differ by as much.
        """
        first, second = _PROBE_TOKENS
        tails = ((6,), second)
        prompt = self.open_context(16)
        prompt.append([first])
        before = prompt.checkpoint()
        try:
            branches, _ = prompt.fork(tails, 2)
            together = branches.append([(7,), (7,)])
        except ModelError as exc:
            return exc.message
        alone = []
        for tail in tails:
            prompt.restore(before)
            alone.append(prompt.append([(*tail, 7)])[0])
        prompt.restore(before)
        prompt.append([second])
        by_step = prompt.append([(7,)])[0]
        kept = np.isfinite(by_step)
        alone, together, by_step = [row[kept] for row in alone], together[:, kept], by_step[kept]
        least = max(_LEAST_ALIKE, min(_ALIKE, 2 * _correlation(alone[1], by_step) - 1))
        slack = 2 * max(float(np.abs(alone[1] - by_step).max()), _PROBE_TOLERANCE * float(by_step.std()))
        for expected, got in zip(alone, together, strict=True):
            found = _correlation(expected, got)
            if not found >= least:
                return f"their logits correlate only by {found:.4f} with those of single lines"
            if expected[got.argmax()] < expected.max() - slack:
                return "their likeliest tokens differ from those of single lines"
        return None


def _correlation(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> float:
    return float(np.corrcoef(a, b)[0, 1])


def _agree(expected: npt.NDArray[np.float32], got: npt.NDArray[np.float32]) -> bool:
    spread = float(expected.std()) or float(np.abs(expected).max()) or 1.0
    return bool(np.abs(expected - got).max() <= _PROBE_TOLERANCE * spread)


def generate_branches(
    context: KeyValueContext,
    logits: npt.NDArray[np.float32],
    choosers: Sequence[Chooser],
    end_ids: Collection[int],
    max_tokens: Sequence[int],
    limits: Limits,
) -> list[Generation]:
    """Continue every row of `context`, one step for all rows at a time.

    A finished row leaves the batch to save time: on a CPU four rows take 1.6 times as long as one. On a GPU, whose
    tensors stay, it is fed its last token, and its output is ignored. The last token chosen is not read back, so a
    context ends one token short of its text unless an end token came.

    Args:
        context: Has read the prompts.
        logits: Shape (batch, vocabulary).
        max_tokens: Budget of each row.

    Raises:
        ModelError: If the runtime fails.
    """
    rows: list[list[int]] = [[] for _ in choosers]
    stops: list[StopReason | None] = [None] * len(rows)
    fed = list(range(len(rows)))
    while True:
        for place, index in enumerate(fed):
            if stops[index] is None:
                stops[index] = _extend(rows[index], logits[place], choosers[index], end_ids, max_tokens[index])
        halt = None if all(stops) else limits.stop_reason()
        ended = [stop or halt for stop in stops]
        if all(ended):
            return [Generation(tuple(row), stop or "budget") for row, stop in zip(rows, ended, strict=True)]
        context, fed = _drop_finished(context, fed, stops)
        # A row may be empty here: it ended before its first token. Any token can be fed.
        logits = context.append([[rows[index][-1] if rows[index] else 0] for index in fed])


def _drop_finished(
    context: KeyValueContext, fed: list[int], stops: Sequence[StopReason | None]
) -> tuple[KeyValueContext, list[int]]:
    """Return the batch of the unfinished rows, and their indexes."""
    going = [place for place, index in enumerate(fed) if stops[index] is None]
    if len(going) == len(fed) or not context.is_on_cpu:
        return context, fed
    return context.keep(going), [fed[place] for place in going]


def _extend(
    row: list[int], logits: npt.NDArray[np.float32], choose: Chooser, end_ids: Collection[int], budget: int
) -> StopReason | None:
    """Add the next token to a row; return the reason if the row ends with it."""
    if len(row) < budget:
        token = choose(logits, row)
        if token in end_ids:
            return "end"
        row.append(token)
    return "budget" if len(row) >= budget else None
