"""A model server on loopback, for tests: strict as its makers document it, or faulty on request."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tests.loopback import serve_posts
from tests.plugins.servers.model_interfaces import DIM, INTERFACES, Answer, chat_answer, encoded, texts_of

Body = dict[str, Any]
Misbehave = Callable[[str, Body], Answer | None]
"""Path and request in; status and answer out, or None to answer as usual."""


@dataclass
class ModelServer:
    """A server that records its requests and can misbehave."""

    kind: str = "vllm"
    """A key of `INTERFACES`."""
    url: str = ""
    requests: list[tuple[str, Body, str | None]] = field(default_factory=list)
    """(path, body, Authorization)."""
    misbehave: Misbehave = lambda path, body: None
    expansion: str = "lex: seat price\nvec: how seats are priced\n"
    thinks: bool = False
    """The chat model is one of those that refuse `max_tokens` and sampling, and think before they answer."""
    dim: int = DIM
    max_batch: int | None = None
    max_chars: int | None = None

    def asked(self, ending: str) -> list[Body]:
        """Return bodies sent to addresses with this ending."""
        return [body for path, body, _ in self.requests if path.endswith(ending)]

    def answer(self, path: str, body: Body) -> Answer:
        """Return the answer to one request."""
        changed = self.misbehave(path, body)
        if changed is not None:
            return changed
        interface = INTERFACES[self.kind]
        route = interface.routes.get(urlsplit(path).path)
        if route is None:
            return 404, {"detail": "Not Found"}
        try:
            asked = msgspec.convert(body, route.request)
        except msgspec.ValidationError as exc:
            return interface.error(400, str(exc))
        refusal = self._refuse_size(body)
        if refusal is not None:
            return refusal
        if isinstance(route.answer, str):
            return self._chat(route.answer, body)
        return 200, route.answer(asked, self.dim)

    def _refuse_size(self, body: Body) -> Answer | None:
        interface, texts = INTERFACES[self.kind], texts_of(body)
        if self.max_batch is not None and len(texts) > self.max_batch:
            status, words = interface.too_many
            return interface.error(status, words.format(n=len(texts), limit=self.max_batch))
        longest = max(map(len, texts), default=0)
        is_cut = interface.truncates is not None and body.get(interface.truncates[0]) == interface.truncates[1]
        if self.max_chars is not None and longest > self.max_chars and not is_cut:
            status, words = interface.too_long
            return interface.error(status, words.format(n=longest, limit=self.max_chars))
        return None

    def _chat(self, kind: str, body: Body) -> Answer:
        if not self.thinks:
            return 200, chat_answer(kind, self.expansion)
        if "max_tokens" in body:
            words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
            return INTERFACES["openai"].error(400, words)
        for name in ("temperature", "top_p", "presence_penalty"):
            if name in body:
                words = f"Unsupported value: '{name}' does not support {body[name]} with this model."
                return INTERFACES["openai"].error(400, words)
        limit = body.get("max_completion_tokens") or body["options"]["num_predict"]
        if limit < 1_000:
            return 200, chat_answer(kind, "", thinking="Let me see", is_cut=True)
        return 200, chat_answer(kind, self.expansion, thinking="lex: not this line")


@contextlib.contextmanager
def serve_models(kind: str = "vllm") -> Iterator[ModelServer]:
    """Run a server for the length of a test."""
    state = ModelServer(kind)

    def answer(path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, bytes, Mapping[str, str]]:
        state.requests.append((path, body, headers.get("Authorization")))
        status, answered = state.answer(path, body)
        return status, encoded(answered), {}

    with serve_posts(answer) as state.url:
        yield state
