"""Quotations from the notes for an agent's prompt, before the agent reads it: short, at once, or nothing.

The client waits for the hook and shows its output to the model, so it may neither fail nor report failures. Text of a
note must not look like the user's words: a pack marks quotations as such, and fences each.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from contextlib import suppress

from msgspec.structs import replace

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import out
from qmd.foreign import parse_json
from qmd.plugins import hooks
from qmd.retrieval.request import SearchRequest
from qmd.retrieval.trace import Listener

_WITHIN_S = 0.75
"""Seconds from the start of the process, which may itself have waited; with that 0.8 s."""
_MOST_INPUT = 1 << 20
_MOST_QUESTION = 2_000
"""Characters of a prompt that are searched: later text is pasted."""
_FEWEST_BYTES = 16
"""Bytes of a question; "yes, go on" is no question, and six Chinese characters may be one."""
_ENOUGH = 0.5
_MOST_TOKENS = 600
_HEAD = "Quotations"
"""Start of a pack with an answer."""
_COMMAND_MARKS = ("/", "!", "#")


def answer_prompt(invocation: Invocation, index: Index = None) -> int:
    """Quote notes that answer the prompt on stdin, as Claude Code sends it; print nothing where none does."""
    # The processor time so far is the minimum that has passed; a thread ends the process even while it waits.
    end = threading.Timer(max(0.0, _WITHIN_S - time.process_time()), os._exit, (0,))
    end.daemon = True
    end.start()
    text = ""
    # No output on stderr, also of native libraries: it would precede the user's own words.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with suppress(Exception):
        text = notes_for(sys.stdin.buffer.read(_MOST_INPUT + 1), invocation, index, int(1000 * _WITHIN_S))
    end.cancel()
    out(text)
    return 0


def notes_for(raw: bytes, invocation: Invocation, index: str | None, budget_ms: int | None) -> str:
    """Return a pack of notes that answer the JSON of a hook well; empty if none does."""
    question = question_of(raw)
    if not question:
        return ""
    spent_ms = int(1000 * time.process_time())
    request = SearchRequest(question, min_relevance=_ENOUGH, expand=False, budget_ms=budget_ms, overhead_ms=spent_ms)
    # As `query` does: a warm process answers if one runs.
    with replace(invocation, command="query").open(invocation.locate(index)) as opened:
        text = hooks.pack(opened, request, Listener(), _MOST_TOKENS, "md")
    return text if text.startswith(_HEAD) else ""


def question_of(raw: bytes) -> str:
    """Return the question in the JSON of a hook, as plain words; empty if there is none."""
    if len(raw) > _MOST_INPUT:
        return ""
    given = parse_json(raw)
    prompt = given.get("prompt") if isinstance(given, dict) else None
    if not isinstance(prompt, str) or prompt.lstrip().startswith(_COMMAND_MARKS):
        return ""
    # Without the marks of the query language: a prompt must not filter, exclude or choose collections.
    words = " ".join(re.sub(r"[^\w\s.'’?]+", " ", prompt[:_MOST_QUESTION]).split())
    return words if len(words.encode("utf-8", "replace")) >= _FEWEST_BYTES else ""
