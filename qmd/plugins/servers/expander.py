"""An `Expander` over a chat server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from qmd.inference.base import Expansion
from qmd.plugins import hooks
from qmd.plugins.servers.apis import CHAT_APIS, DRAWING, ChatAnswer, ChatCall, read_chat
from qmd.plugins.servers.client import DeadlineError, RefusalError, RemoteClient
from qmd.plugins.servers.engines import ServerEngine
from qmd.records import SubQuery, SubQueryKind

_ANSWER_TOKENS = 300
_THINKING_TOKENS = 2_000
"""Limit for models that think before they answer; thinking counts, too."""
_TYPED_LINE = re.compile(r"^\s*[-*]?\s*(lex|vec|hyde)\s*:\s*(.+)$", re.IGNORECASE)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)|\A.*</think(?:ing)?>", re.DOTALL)
"""Some templates contain the opening tag, so that the answer begins within the thinking."""
_INSTRUCTIONS = (
    "You expand search queries over a collection of notes and documents. Write in the language of the query. "
    "Answer with four lines and nothing else:\n"
    "lex: two to five keywords for full-text search\n"
    "lex: other keywords, with a synonym or related term\n"
    "vec: the query reworded as one clear sentence\n"
    "hyde: one sentence from a document that would answer the query\n"
    "Keep the query's own names and key terms."
)


class RemoteExpander(ServerEngine[ChatAnswer]):
    """An `Expander` over a chat server."""

    role = "expand"
    also_by_form = False

    def __init__(self, client: RemoteClient) -> None:
        super().__init__(client, CHAT_APIS, read_chat)
        is_openai = urlsplit(client.settings.url).hostname == "api.openai.com"
        self._limit = _THINKING_TOKENS if is_openai else _ANSWER_TOKENS
        self._limit_name = "max_completion_tokens" if is_openai else "max_tokens"
        # OpenAI's own models refuse sampling settings, or have better ones.
        self._draws = not is_openai

    def expand(
        self,
        query: str,
        *,
        intent: str | None = None,
        deadline_s: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Expansion:
        """Return validated sub-queries in the query's own language; other lines are among the dropped.

        Raises:
            ModelError: If the server fails.
        """
        if not query.strip() or (is_cancelled is not None and is_cancelled()):
            return Expansion(())
        request = f"Query: {query.strip()}" + (f"\nIntent: {intent.strip()}" if intent and intent.strip() else "")
        if "qwen3" in self.settings.model.lower():
            request += " /no_think"
        try:
            answer = self._complete(request, deadline_s)
        except DeadlineError:
            return Expansion((), ((query, "no time was left for expansion"),))
        proposed, other = parse_typed_lines(answer.text)
        if answer.is_cut and not proposed:
            return Expansion((), ((query, f"the model thought for {self._limit} tokens and gave no answer"),))
        checked = hooks.check_expansions(query, proposed, intent=intent)
        dropped = (*checked.dropped, *((line, "is not a typed line") for line in other))
        return Expansion(checked.subqueries, dropped)

    def _complete(self, request: str, deadline_s: float | None) -> ChatAnswer:
        """Return the model's answer; after a refusal, requests change or omit the refused field from then on."""
        messages = [{"role": "system", "content": _INSTRUCTIONS}, {"role": "user", "content": request}]
        while True:
            limit = {self._limit_name: self._limit}
            call = ChatCall(self.settings.model, messages, self._limit, draws=self._draws, **limit)
            try:
                answer = self.ask(call, deadline_s=deadline_s, limit_s=self.settings.timeout_s)
            except RefusalError as exc:
                if not self._adapts(exc):
                    raise
                continue
            if answer.is_cut and self._limit < _THINKING_TOKENS and not parse_typed_lines(answer.text)[0]:
                self._limit = _THINKING_TOKENS
                continue
            return answer

    def _adapts(self, refusal: RefusalError) -> bool:
        """Change the next request after a refusal, at most twice; return whether it changed."""
        if self._limit_name == "max_tokens" and "max_tokens" in refusal.words:
            self._limit_name, self._limit = "max_completion_tokens", _THINKING_TOKENS
            return True
        if self._draws and any(name in refusal.words for name in DRAWING):
            # Models that refuse one of them think, and refuse all.
            self._draws, self._limit = False, _THINKING_TOKENS
            return True
        return False


def parse_typed_lines(text: str) -> tuple[list[SubQuery], list[str]]:
    """Return typed lines of a model's answer, thinking removed, and the other non-empty lines."""
    proposed: list[SubQuery] = []
    other: list[str] = []
    for line in _THINKING.sub("", text).splitlines():
        match = _TYPED_LINE.match(line)
        if match:
            kind = cast(SubQueryKind, match[1].lower())
            proposed.append(SubQuery(kind, match[2].strip(), len(proposed) + 1))
        elif line.strip():
            other.append(line.strip())
    return proposed, other
