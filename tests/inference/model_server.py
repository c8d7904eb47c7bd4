"""An OpenAI-compatible model server on loopback, for tests: embeddings, rerank, chat; it can be told to misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Misbehave = Callable[[str, Body], tuple[int, Any] | None]
"""Path and request in; status and answer out, or None to answer as usual."""

DIM = 32


@dataclass
class ModelServer:
    """What it was asked, and how it misbehaves."""

    url: str = ""
    requests: list[tuple[str, Body, str | None]] = field(default_factory=list)
    """(path, body, Authorization)."""
    misbehave: Misbehave = lambda path, body: None
    expansion: str = "lex: seat price\nvec: how seats are priced\n"
    dim: int = DIM

    def asked(self, ending: str) -> list[Body]:
        """Bodies sent to addresses with this ending."""
        return [body for path, body, _ in self.requests if path.endswith(ending)]

    def answer(self, path: str, body: Body) -> tuple[int, Any]:
        """The answer to one request."""
        changed = self.misbehave(path, body)
        if changed is not None:
            return changed
        if path.endswith("/embeddings"):
            rows = [{"index": i, "embedding": _word_vector(text, self.dim)} for i, text in enumerate(body["input"])]
            return 200, {"data": rows}
        if path.endswith("/rerank"):
            words = set(body["query"].lower().split())
            scores = [len(words & set(text.lower().split())) / len(words) for text in body["documents"]]
            return 200, {"results": [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]}
        if path.endswith("/chat/completions"):
            return 200, {"choices": [{"message": {"content": self.expansion}}]}
        return 404, {"error": {"message": "no such endpoint"}}


def _word_vector(text: str, dim: int) -> list[float]:
    """Counts of hashed words: texts with common words are close."""
    vector = [0.01] * dim
    for word in text.lower().split():
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % dim] += 1.0
    return vector


@contextlib.contextmanager
def serve_models() -> Iterator[ModelServer]:
    """Run a server for the length of a test."""
    state = ModelServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append((self.path, body, self.headers.get("Authorization")))
            status, answer = state.answer(self.path, body)
            raw = json.dumps(answer).encode()
            # A client that has given up is gone.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        def log_message(self, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
