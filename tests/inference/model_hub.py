"""A loopback server that answers like a model hub's resolve addresses, and can misbehave."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from qmd.inference.models.catalogue import QWEN_RERANKER

COMMIT = "a" * 40
WEIGHTS = bytes(range(256)) * 12_000


@dataclass
class FakeHub:
    """The hub: it holds the files of one repository."""

    files: dict[str, bytes]
    repository: str = QWEN_RERANKER.repository
    url: str = ""
    drop_after: list[int] = field(default_factory=list)
    """Bytes after which each of the next answers with a body breaks off."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(command, file, range)."""
    wrong_tags: bool = False

    def env(self, **more: str) -> dict[str, str]:
        """The variables that lead here."""
        return {"HF_ENDPOINT": self.url, **more}


@contextlib.contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Run a hub for the length of a test."""
    files = {"onnx/model.onnx": WEIGHTS, "model.onnx": WEIGHTS[:5000], "tokenizer.json": b"{}", "config.json": b"{} "}
    state = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            _, _, after = self.path.partition("/resolve/")
            _, _, name = after.partition("/")
            state.requests.append((self.command, name, self.headers.get("Range")))
            content = state.files.get(name)
            if content is None or state.repository not in self.path:
                self.send_response(404)
                self.send_header("X-Error-Code", "EntryNotFound" if content is None else "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            digest = hashlib.sha256(content).hexdigest()
            tag = digest if len(content) > 100 else digest[:40]
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if with_body else 0
            body = content[start:]
            self.send_response(206 if start else 200)
            self.send_header("ETag", f'"{"0" * 64 if state.wrong_tags else tag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not with_body:
                return
            if state.drop_after:
                body = body[: state.drop_after.pop(0)]
                self.close_connection = True
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
