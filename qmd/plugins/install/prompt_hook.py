"""Quotations from the notes for an agent's prompt, before the agent reads it: short, at once, or nothing.

The client waits for the hook and shows its output to the model, so it may neither fail nor report failures. Text of a
note must not look like the user's words: a pack marks quotations as such, and fences each.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from msgspec.structs import replace

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import out
from qmd.foreign import parse_json
from qmd.plugins import hooks
from qmd.plugins.install.prompt_rule import search_of
from qmd.process import PROMPT_S, exit_at_age, process_age_s
from qmd.retrieval.request import Mode, SearchRequest
from qmd.retrieval.trace import Listener

_MODELS_S, _LEAST_S = 0.5, 0.15
"""Age of the process from which words alone answer, and the time that a search with models has at least."""
_MOST_INPUT, _MOST_TOKENS = 1 << 20, 600


def answer_prompt(invocation: Invocation, index: Index = None) -> int:
    """Quote notes that answer the prompt on stdin, as Claude Code sends it; print nothing where none does."""
    return answer_hook(lambda raw: out(notes_for(raw, invocation, index)))


def answer_hook(answer: Callable[[bytes], None]) -> int:
    """Answer the input on stdin in time, without messages, errors or a failing status."""
    exit_at_age(PROMPT_S)
    # No output on stderr, also of native libraries: it would precede the user's own words.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(Exception):
        answer(sys.stdin.buffer.read(_MOST_INPUT + 1))
    return 0


def notes_for(raw: bytes, invocation: Invocation, index: str | None, age_s: Callable[[], float] = process_age_s) -> str:
    """Return a pack of notes, not of sessions (they have the prompt), that answer the JSON of a hook; else empty.

    A warm process answers, or models of this one if its start left time to load them, or else words alone.
    """
    given = parse_json(raw) if len(raw) <= _MOST_INPUT else None
    prompt = given.get("prompt") if isinstance(given, dict) else None
    search = search_of(prompt) if isinstance(prompt, str) else None
    if search is None:
        return ""
    (words, enough), answers = search, SimpleQueue[str]()

    def answer(mode: Mode) -> None:
        request = SearchRequest(words, mode=mode, min_relevance=enough, expand=False, folder="/")
        request = replace(request, budget_ms=int(1000 * PROMPT_S), overhead_ms=int(1000 * age_s()))
        text = ""
        # As `query` does: a warm process answers if one runs.
        with suppress(Exception), replace(invocation, command="query").open(invocation.locate(index)) as opened:
            text = hooks.pack(opened, request, Listener(), _MOST_TOKENS, "md", warns=False)
        answers.put(text if text.startswith("Quotations") else "")

    threading.Thread(target=answer, args=("hybrid",), daemon=True).start()
    with suppress(Empty):
        return answers.get(timeout=max(_LEAST_S, _MODELS_S - age_s()))
    threading.Thread(target=answer, args=("lexical",), daemon=True).start()
    return answers.get()
