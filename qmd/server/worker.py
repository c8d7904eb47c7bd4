"""The warm worker: one process per index that keeps its models loaded and answers the commands of the same user.

`python -m qmd.server.worker --database FILE --cache FOLDER` serves until nothing has asked for a while, the index is
gone, or a newer version of qmd asks.
"""

from __future__ import annotations

import argparse
import hmac
import logging
import os
import secrets
import signal
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import qmd
from qmd.errors import QmdError
from qmd.files import exclusive_lock
from qmd.retrieval.listening import CancelledSearch
from qmd.server.calls import Asker, ServiceCalls
from qmd.server.client import DEFAULT_IDLE_EXIT_S, HEARTBEAT_S, environment_digest
from qmd.server.endpoint import (
    ByteStream,
    Endpoint,
    WorkerFiles,
    read_endpoint,
    receive_message,
    send_message,
    supports_unix_sockets,
    worker_files,
    write_endpoint,
)

_logger = logging.getLogger("qmd.worker")

_TICK_S = 1.0
_MAX_REQUEST_BYTES = 1024 * 1024
"""A request holds a query and settings; only an answer may be long."""

_REQUEST_TIMEOUT_S = 5.0
_PROGRESS_INTERVAL_S = 0.1


class WorkerCalls(Protocol):
    """What a worker can do. `qmd.server.calls.ServiceCalls` is the real one."""

    def handle(self, call: str, params: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        """The JSON answer of a call; `QmdError`s travel to the asker, anything else makes it work by itself."""
        ...

    def release_idle(self) -> None:
        """Give up what has not been used for its time to live."""
        ...


class Worker:
    """A listening worker. Create it while holding the lock of its index."""

    def __init__(
        self,
        files: WorkerFiles,
        calls: WorkerCalls,
        *,
        idle_exit_s: float | None = None,
        environ: Mapping[str, str],
        keep_going: Callable[[], bool] = lambda: True,
    ) -> None:
        self._files = files
        self._calls = calls
        self._idle_exit_s = idle_exit_s
        self._keep_going = keep_going
        self._environment = environment_digest(environ)
        self._used_at = time.monotonic()
        self._active = 0
        self._count_lock = threading.Lock()
        self._server, address = _listen(files, self._serve_connection, self._tick)
        self.endpoint = Endpoint(os.getpid(), secrets.token_hex(32), qmd.__version__, **address)
        write_endpoint(files.record, self.endpoint)

    def serve(self) -> None:
        """Answer until stopped; then withdraw the record, so that nobody knocks in vain."""
        try:
            self._server.serve_forever(poll_interval=_TICK_S / 4)
        finally:
            self._withdraw()
            self._server.server_close()

    def stop(self) -> None:
        """Make `serve` return. Any thread may call it; it does not wait."""
        self._withdraw()
        threading.Thread(target=self._server.shutdown, daemon=True).start()

    def _withdraw(self) -> None:
        if read_endpoint(self._files.record) == self.endpoint:
            self._files.record.unlink(missing_ok=True)
            self._files.socket.unlink(missing_ok=True)

    def _tick(self) -> None:
        """Runs about every second on the serving thread."""
        self._calls.release_idle()
        idle_s = time.monotonic() - self._used_at
        is_expired = self._idle_exit_s is not None and self._active == 0 and idle_s >= self._idle_exit_s
        # A record that no longer names this worker means that nobody can find it any more.
        if is_expired or not self._keep_going() or read_endpoint(self._files.record) != self.endpoint:
            self.stop()

    def _serve_connection(self, connection: socket.socket) -> None:
        # For the whole line: a time-out of the socket would begin anew with every byte.
        patience = threading.Timer(_REQUEST_TIMEOUT_S, _hang_up, (connection,))
        patience.daemon = True
        patience.start()
        # Closing the stream writes what is left, which fails like everything else once the asker has gone.
        with suppress(OSError, ValueError), connection.makefile("rwb") as stream:
            try:
                request = receive_message(stream, _MAX_REQUEST_BYTES)
            finally:
                patience.cancel()
            if request is None:
                return
            refusal = self._refusal(request)
            if refusal is not None:
                send_message(stream, {"refused": refusal})
                return
            with self._counted():
                self._answer(stream, str(request.get("call")), request.get("params") or {})

    def _refusal(self, request: Mapping[str, Any]) -> str | None:
        if not hmac.compare_digest(str(request.get("token", "")).encode(), self.endpoint.token.encode()):
            return "wrong token"
        if request.get("version") != qmd.__version__:
            # The program was upgraded or replaced under this process; the next command starts the new one.
            self.stop()
            return "another version"
        if request.get("environment") != self._environment:
            return "other settings in the environment"
        return None

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._count_lock:
            self._active += 1
        try:
            yield
        finally:
            with self._count_lock:
                self._active -= 1
            self._used_at = time.monotonic()

    def _answer(self, stream: ByteStream, call: str, params: Mapping[str, Any]) -> None:
        with _Reply(stream) as reply:
            try:
                result = self._calls.handle(call, params, reply)
            except QmdError as error:
                reply.send({"error": _error_fields(error)})
            except OSError:
                raise
            except CancelledSearch:
                return
            except Exception:
                # The asker repeats the work in its own process, where the failure shows with its traceback.
                _logger.exception("call %s failed", call)
                reply.send({"refused": "unexpected failure, see the worker's log"})
            else:
                reply.send({"result": result})


class _Reply(Asker):
    """Sends stages and the answer, and a sign of life in between, from two threads over one stream."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._is_gone = False
        self._told_at = 0.0

    @property
    def is_gone(self) -> bool:
        """Whether a sign of life could not be delivered."""
        return self._is_gone

    def __enter__(self) -> _Reply:
        self.send({"alive": True})
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def send(self, message: Mapping[str, object]) -> None:
        with self._lock:
            send_message(self._stream, message)

    def stage(self, name: str, /) -> None:
        """See `Asker`."""
        if self._is_gone:
            raise ConnectionResetError("the asker has gone")
        self.send({"stage": name})

    def progress(self, done: int, total: int, /) -> None:
        """See `Asker`; sent at most ten times a second."""
        if self._is_gone:
            raise ConnectionResetError("the asker has gone")
        if time.monotonic() - self._told_at >= _PROGRESS_INTERVAL_S:
            self._told_at = time.monotonic()
            self.send({"progress": [done, total]})

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_S):
            try:
                self.send({"alive": True})
            except (OSError, ValueError):
                self._is_gone = True
                return


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _error_fields(error: QmdError) -> dict[str, object]:
    classes = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, QmdError)]
    return {"classes": classes, "message": error.message, "hint": error.hint}


def _listen(
    files: WorkerFiles, serve: Callable[[socket.socket], None], tick: Callable[[], None]
) -> tuple[socketserver.BaseServer, dict[str, Any]]:
    """A bound server and its address as fields of `Endpoint`."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            serve(self.request)

    class Ticking(socketserver.ThreadingMixIn):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 64
        _ticked_at = 0.0

        def service_actions(self) -> None:
            if time.monotonic() - self._ticked_at >= _TICK_S:
                self._ticked_at = time.monotonic()
                tick()

    if sys.platform != "win32" and supports_unix_sockets(files.socket):

        class UnixServer(Ticking, socketserver.UnixStreamServer):
            pass

        files.socket.unlink(missing_ok=True)
        server = UnixServer(str(files.socket), Handler)
        files.socket.chmod(0o600)
        return server, {"socket": str(files.socket)}

    class TcpServer(Ticking, socketserver.TCPServer):
        pass

    tcp = TcpServer(("127.0.0.1", 0), Handler)
    return tcp, {"port": tcp.server_address[1]}


def run_worker(
    files: WorkerFiles,
    calls: WorkerCalls,
    *,
    idle_exit_s: float | None,
    environ: Mapping[str, str],
    keep_going: Callable[[], bool] = lambda: True,
) -> bool:
    """Serve in this thread until stopped; False at once when another worker already serves this index."""
    with exclusive_lock(files.lock) as is_mine:
        if not is_mine:
            return False
        worker = Worker(files, calls, idle_exit_s=idle_exit_s, environ=environ, keep_going=keep_going)
        for name in (signal.SIGTERM, signal.SIGINT):
            if threading.current_thread() is threading.main_thread():
                signal.signal(name, lambda *_: worker.stop())
        _logger.info("serving as process %d", os.getpid())
        worker.serve()
        _logger.info("stopped")
        return True


@contextmanager
def worker_beside(cache: Path, database: Path, calls: WorkerCalls, environ: Mapping[str, str]) -> Iterator[None]:
    """Answer commands as well while the block runs another server, unless a worker does so already."""
    files = worker_files(cache, database)
    with exclusive_lock(files.lock) as is_mine:
        if not is_mine:
            yield
            return
        worker = Worker(files, calls, environ=environ)
        thread = threading.Thread(target=worker.serve, name="worker", daemon=True)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join(timeout=2)


def main(argv: list[str] | None = None) -> int:
    """Entry point of the worker process."""
    parser = argparse.ArgumentParser(prog="python -m qmd.server.worker")
    parser.add_argument("--database", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--idle-exit-s", default="")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s", stream=sys.stderr)

    from qmd.server.pools import parse_model_ttl
    from qmd.server.service import local_service

    idle_exit_s = parse_model_ttl(options.idle_exit_s) if options.idle_exit_s else DEFAULT_IDLE_EXIT_S
    database: Path = options.database
    run_worker(
        worker_files(options.cache, database),
        ServiceCalls(local_service(database, os.environ)),
        idle_exit_s=idle_exit_s,
        environ=os.environ,
        keep_going=database.exists,
    )
    return 0


if __name__ == "__main__":
    from qmd.server.lifecycle import end_process

    end_process(main())
