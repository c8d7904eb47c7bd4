"""S3 server (moto) that counts requests as a bill would, and answers after a given delay.

with counted_s3() as server:
    ...                      # os.environ | server.env for its users
    print(server.counts())   # since the last time
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

BUCKET = "notes"

_SMALL = 65_536
"""Bytes of an object that moto keeps in memory; larger ones are on the disk."""

_RULED = "/-/"

Environ = dict[str, Any]
Start = Callable[[str, list[tuple[str, str]]], object]


class CountedS3:
    """Running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        names = {"ENDPOINT": self._url, "ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "us-east-1"}
        self.env: Mapping[str, str] = {f"AWS_{name}": value for name, value in names.items()} | {
            "AWS_ALLOW_HTTP": "true"
        }

    def counts(self) -> Counter[str]:
        """Return requests by kind, and bytes `in` and `out`, since the last call."""
        return Counter(json.loads(self._ask("counts")))

    def answer_after(self, delay_ms: int) -> None:
        """Delay each answer."""
        self._ask(f"delay/{delay_ms}")

    def make_bucket(self) -> None:
        """Make the bucket."""
        urllib.request.urlopen(urllib.request.Request(f"{self._url}/{BUCKET}", method="PUT"), timeout=10).close()

    def _ask(self, what: str) -> bytes:
        with urllib.request.urlopen(f"{self._url}{_RULED}{what}", timeout=10) as answer:
            return bytes(answer.read())


PLAIN = ("-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p")
"""Plain moto, which counts nothing; its module for the program next to the interpreter has no `__main__`."""


@contextmanager
def counted_s3(program: Sequence[str] = ("-m", "tests.benchmarks.counted_s3")) -> Iterator[CountedS3]:
    """Run a server with an empty bucket; the interpreter is given `program` and the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen([sys.executable, *program, str(port)], stdout=log, stderr=log)
        try:
            server, end = CountedS3(port), time.monotonic() + 60
            while True:
                with suppress(OSError):
                    server.make_bucket()
                    break
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit("moto does not answer: pip install 'moto[server]'")
                time.sleep(0.2)
            yield server
        finally:
            process.kill()
            process.wait()


class _Counting:
    """Handler that counts, waits, and answers requests for a part of an object itself: moto reads all of it each
    time."""

    def __init__(self, application: Callable[[Environ, Start], Iterable[bytes]]) -> None:
        self._application = application
        self._counts: Counter[str] = Counter()
        self._delay_s = 0.0
        self._counting, self._putting = threading.Lock(), threading.Lock()

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith(_RULED):
            return self._obey(path.removeprefix(_RULED), start)
        time.sleep(self._delay_s)
        bucket, _, key = path.lstrip("/").partition("/")
        kind = "LIST" if method == "GET" and not key else "PUT" if method == "POST" else method
        body = self._part(bucket, key, environ.get("HTTP_RANGE", ""), start) if method == "GET" and key else None
        if body is None:
            # moto looks for the object and stores it in two steps.
            with self._putting if method == "PUT" else nullcontext():
                body = b"".join(self._application(environ, start))
        with self._counting:
            n_in = int(environ.get("CONTENT_LENGTH") or 0)
            self._counts.update({kind: 1, "in": n_in, "out": len(body) if method == "GET" else 0})
        return [body]

    def _obey(self, order: str, start: Start) -> Iterable[bytes]:
        if order.startswith("delay/"):
            self._delay_s = int(order.removeprefix("delay/")) / 1000
        with self._counting:
            body, self._counts = json.dumps(self._counts).encode(), Counter()
        start("200 OK", [("content-length", str(len(body)))])
        return [body]

    def _part(self, bucket: str, key: str, wanted: str, start: Start) -> bytes | None:
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        first, _, last = wanted.removeprefix("bytes=").partition("-")
        buckets = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets
        found = buckets[bucket].keys.get(key) if bucket in buckets else None
        if not first or not last or found is None or int(first) >= found.contentsize:
            return None
        end = min(int(last) + 1, found.contentsize)
        with found.lock:
            found._value_buffer.seek(int(first))
            body = bytes(found._value_buffer.read(end - int(first)))
        headers = {"content-length": str(len(body)), "content-range": f"bytes {first}-{end - 1}/{found.contentsize}"}
        modified = found.last_modified.strftime("%a, %d %b %Y %H:%M:%S GMT")
        start("206 Partial Content", [*headers.items(), ("etag", found.etag), ("last-modified", modified)])
        return body


def _serve(port: int) -> None:
    os.environ["MOTO_S3_DEFAULT_KEY_BUFFER_SIZE"] = str(_SMALL)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    # Connections stay open, as with S3.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    run_simple("127.0.0.1", port, _Counting(DomainDispatcherApplication(create_backend_app)), threaded=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
