"""HTTP servers on loopback for the length of a test."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AnswerPost = Callable[[str, Any, Mapping[str, str]], tuple[int, bytes, Mapping[str, str]]]
"""Path, JSON and headers of a request in; status, body and headers out."""


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that writes no log."""

    def log_message(self, *args: object) -> None: ...


@contextmanager
def serve(handler: type[QuietHandler]) -> Iterator[str]:
    """The address of a server whose requests are handled by this."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@contextmanager
def serve_posts(answer: AnswerPost) -> Iterator[str]:
    """The address of a server that is sent JSON."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, raw, headers = answer(self.path, body, dict(self.headers))
            # A client that has given up is gone.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                for name, value in {"Content-Length": str(len(raw)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(raw)

    with serve(Handler) as url:
        yield url
