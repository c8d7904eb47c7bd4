"""A loopback server that answers like a model hub's resolve addresses, and can misbehave."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from qmd.inference.models.catalogue import QWEN_RERANKER
from tests.loopback import QuietHandler, serve

COMMIT = "a" * 40
WEIGHTS = bytes(range(256)) * 12_000


@dataclass(frozen=True)
class Asked:
    """One request: `where` is "hub", or "store" for the address that a hub with a store redirects to."""

    command: str
    name: str
    range: str | None
    revision: str
    where: str
    number: int
    """1 for the first request with this command and name."""


@dataclass(frozen=True)
class Reply:
    """An answer that replaces the right one."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    breaks_off: bool = False
    """End the connection after the body, even if the headers promise more."""


@dataclass
class FakeHub:
    """The hub, with the files of one repository."""

    files: dict[str, bytes]
    repository: str = QWEN_RERANKER.repository
    url: str = ""
    commit: str = COMMIT
    drop_after: list[int] = field(default_factory=list)
    """Bytes after which each of the next answers with a body breaks off."""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(command, file, range)."""
    paths: list[str] = field(default_factory=list)
    """Path of each request, in full."""
    agents: set[str | None] = field(default_factory=set)
    """User agents of the clients."""
    tokens: list[tuple[str, str | None]] = field(default_factory=list)
    """(where, Authorization) of each request."""
    wrong_tags: bool = False
    store: str = ""
    """Address of the host that large files are redirected to; empty if the hub sends them itself."""
    old: dict[tuple[str, str], bytes] = field(default_factory=dict)
    """Files of earlier versions, by commit and name."""
    reply: Callable[[Asked], Reply | None] = lambda asked: None
    """Returns an answer that replaces the right one, or None."""

    def env(self, **more: str) -> dict[str, str]:
        """Return the variables that lead here."""
        return {"HF_ENDPOINT": self.url, **more}

    def use_store(self) -> None:
        """Keep large files with another host, as the real hub does; each HEAD gives a newly signed address."""
        self.store = self.url.replace("127.0.0.1", "localhost")

    def asked_for(self, command: str, name: str) -> int:
        """Return the number of requests for a file."""
        return sum(request[:2] == (command, name) for request in self.requests)


@contextlib.contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Run a hub for the length of a test."""
    files = {"onnx/model.onnx": WEIGHTS, "model.onnx": WEIGHTS[:5000], "tokenizer.json": b"{}", "config.json": b"{} "}
    state = FakeHub(files)

    class Handler(QuietHandler):
        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            where = "store" if self.path.startswith("/signed/") else "hub"
            before, _, after = self.path.partition("/signed/" if where == "store" else "/resolve/")
            revision, _, name = after.partition("/")
            state.paths.append(self.path)
            state.agents.add(self.headers.get("User-Agent"))
            state.tokens.append((where, self.headers.get("Authorization")))
            state.requests.append((self.command, name, self.headers.get("Range")))
            number = state.asked_for(self.command, name)
            asked = Asked(self.command, name, self.headers.get("Range"), revision, where, number)
            reply = state.reply(asked)
            if reply is None and name not in state.files:
                reply = Reply(404, {"X-Error-Code": "EntryNotFound"})
            elif reply is None and where == "hub" and before.strip("/") != state.repository:
                reply = Reply(404, {"X-Error-Code": "RepoNotFound"})
            self._send(reply or self._right(asked))

        def _right(self, asked: Asked) -> Reply:
            content = state.files[asked.name]
            digest = hashlib.sha256(content).hexdigest()
            tag = digest if len(content) > 100 else digest[:40]
            tag = f'"{"0" * 64 if state.wrong_tags else tag}"'
            if asked.where == "hub" and state.store and len(content) > 100:
                linked = {"X-Linked-ETag": tag, "X-Linked-Size": str(len(content)), "X-Repo-Commit": state.commit}
                signature = len(state.requests)
                return Reply(302, {**linked, "Location": f"{state.store}/signed/{signature}/{asked.name}"})
            start = int((asked.range or "bytes=0-")[6:-1]) if asked.command == "GET" else 0
            headers = {"ETag": tag, "Content-Length": str(len(content) - start)}
            if asked.where == "hub":
                headers["X-Repo-Commit"] = state.commit
            if start >= len(content) > 0:
                return Reply(416, {"Content-Range": f"bytes */{len(content)}"})
            if asked.range:
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            breaks_off = asked.command == "GET" and bool(state.drop_after)
            body = content[start:][: state.drop_after.pop(0)] if breaks_off else content[start:]
            return Reply(206 if asked.range else 200, headers, body, breaks_off)

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if not {"content-length", "transfer-encoding"} & {name.lower() for name in reply.headers}:
                if reply.breaks_off:
                    self.send_header("Connection", "close")
                else:
                    self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.close_connection = self.close_connection or reply.breaks_off
            if self.command == "GET":
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self.wfile.write(reply.body)

    with serve(Handler) as state.url:
        yield state
