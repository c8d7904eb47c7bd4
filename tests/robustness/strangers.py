"""What strangers send: projects with a hostile `.qmd`, answers of model hubs and of model servers.

What lies outside of where qmd may work is watched: nothing there may be made, changed or read.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from qmd.errors import QmdError
from tests.robustness import generators

Dice = random.Random
_SECRET = "the-owner-alone-may-read-this"
_LONG_AGO = 1_000_000_000


class Touched(Exception):
    """Something was made, changed, removed or read that no stranger may reach."""


class Watch:
    """A look at everything below some places, which notices later what has become of it.

    Reading is noticed where the file system keeps the time of the last access: the first after a change at the least.
    """

    def __init__(self, places: list[Path], may_come: tuple[Path, ...] = ()) -> None:
        self._places = places
        self._may_come = may_come
        for path in self._all():
            if not path.is_symlink() and path.is_file():
                os.utime(path, (_LONG_AGO, _LONG_AGO + 1))
        self._before = self._look()

    def check(self) -> None:
        """Compare with the first look.

        Raises:
            Touched: Something is not as it was.
        """
        now = self._look()
        if now != self._before:
            odd = sorted(set(now.items()) ^ set(self._before.items()))
            raise Touched(f"touched: {odd[:4]}")

    def _all(self) -> Iterator[Path]:
        todo = list(self._places)
        while todo:
            path = todo.pop()
            if path not in self._may_come:
                yield path
                todo += path.iterdir() if path.is_dir() and not path.is_symlink() else ()

    def _look(self) -> dict[str, tuple[int, ...]]:
        found = {}
        for path in self._all():
            status = path.lstat()
            is_file = path.is_file() and not path.is_symlink()
            facts = (status.st_size, status.st_mtime_ns, status.st_atime_ns) if is_file else ()
            found[str(path)] = (status.st_mode, *facts)
        return found


# --- projects -------------------------------------------------------------------------------------

_PLACES = (
    *("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "index.sqlite-journal", "index.yml", "index.yaml"),
    *("index.qmd.sqlite", ".index.sqlite.lock", ".index.sqlite.embed.lock", ".index.sqlite.embed.json"),
    *(".index.sqlite.embed-wanted.lock", ".index.sqlite.made", ".index.sqlite.new", ".index.sqlite.large"),
    *(
        ".index.sqlite.verified",
        ".index.yml.lock",
        "index.sqlite.strange",
        "index.sqlite.damaged",
        "n" * 250,
        "index.x",
    ),
)
_KINDS = ("link", "link", "link", "second name", "pipe", "folder", "bytes", "index", "yaml")
_TARGETS = (
    *(
        "../../.bashrc",
        "{home}/.bashrc",
        "{home}/.ssh/authorized_keys",
        "{home}/new",
        "../../../cache/qmd/index.sqlite",
    ),
    *("{cache}/qmd/index.sqlite", "{home}/notes/secret.md", "/dev/zero", "/dev/null/x", "index.sqlite", "..", "/"),
    *("{config}/qmd/index.yml", "{home}/notes", "x" * 300),
)
_FOLDERS = ("../elsewhere", "{home}/elsewhere")
"""What a `.qmd` that is a link leads to: projects of others, as without one the user's own index is meant."""
_COMMANDS = (
    *(["index", "--no-embed"], ["update"], ["search", _SECRET], ["search", "alpha", "-c", "notes"], ["get", "a.md"]),
    *(
        ["status"],
        ["ls"],
        ["context", "add", "/", "x"],
        ["collection", "list"],
        ["cleanup"],
        ["init"],
        ["trust", "list"],
    ),
    *(["collection", "add", ".", "--name", "more"], ["links", "a.md"], ["multi-get", "*.md"], ["embed", "--help"]),
)


def project(dice: Dice) -> bytes:
    """A tree for `.qmd`, and what is asked of it, as JSON."""
    places = dice.sample(_PLACES, dice.randint(0, 3))
    tree = [[place, dice.choice(_KINDS), dice.choice(_TARGETS), dice.randrange(1 << 30)] for place in places]
    yaml = ("collections: {p: {path: .}}", "collections: {p: {path: ../notes}, q: {path: /}}", "models: {embed: /etc}")
    return json.dumps(
        {
            "tree": tree,
            "yaml": dice.choice([*yaml, yaml[0], yaml[0]]),
            "linked": dice.choice(_FOLDERS) if dice.random() < 0.1 else None,
            "commands": dice.sample(_COMMANDS, 2),
        }
    ).encode()


class _World:
    """A home with secrets, an index of its own, and a clone into which the hostile trees are put."""

    def __init__(self, folder: Path) -> None:
        self.home, self.cache, self.config = folder / "home", folder / "cache", folder / "config"
        self.clone = self.home / "clone"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / "notes").mkdir()
        (self.home / "elsewhere").mkdir()
        (self.home / "elsewhere/index.yml").write_text("collections: {p: {path: .}}\n")
        for name in (".bashrc", ".ssh/authorized_keys", "notes/secret.md"):
            (self.home / name).write_text(f"# {_SECRET}\n")
        variables = {"HOME": self.home, "XDG_CACHE_HOME": self.cache, "XDG_CONFIG_HOME": self.config, "PWD": self.home}
        os.environ.update({name: str(path) for name, path in variables.items()}, QMD_DAEMON="0", QMD_PAGER="")
        os.chdir(self.home)
        self.run(["index", "notes", "--no-embed"])
        self.clone.mkdir()
        (self.clone / "a.md").write_text("# Alpha\n")
        os.chdir(self.clone)
        os.environ["PWD"] = str(self.clone)
        self.run(["init"])
        self.run(["index", ".", "--no-embed"])
        self.index = (self.clone / ".qmd/index.sqlite").read_bytes()
        # Side files of an index that was only just closed may still go.
        self._watch = [self.home, self.config, self.cache]
        # A collection that the user adds on the command line to a project that needs no trust is trusted.
        own = ("projects", "trusted.json", ".trusted.json.lock")
        self._may_come = (self.clone, *(folder / "qmd" / name for folder in (self.cache, self.config) for name in own))

    def format(self, target: str) -> str:
        return target.format(home=self.home, cache=self.cache, config=self.config)

    def put(self, place: Path, kind: str, target: str, number: int) -> None:
        with contextlib.suppress(OSError):
            place.unlink(missing_ok=True)
            if kind == "link":
                place.symlink_to(self.format(target))
            elif kind == "second name":
                place.hardlink_to(self.home / ".bashrc")
            elif kind == "pipe":
                os.mkfifo(place)
            elif kind == "folder":
                place.mkdir()
            elif kind == "index":
                place.write_bytes(generators.mutate(self.index, Dice(number)) if number % 3 else self.index)
            else:
                place.write_bytes(
                    generators.configuration(Dice(number)) if kind == "yaml" else os.urandom(number % 5000)
                )

    def run(self, words: list[str]) -> None:
        """Run a command in this process.

        Raises:
            Touched: It told a secret, or what it could not do was not foreseen.
        """
        from qmd.cli.app import main

        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = out, err
        try:
            main(words)
        finally:
            sys.stdout, sys.stderr = streams
        told = []
        for stream in (out, err):
            stream.flush()
            told.append(stream.buffer.getvalue().decode(errors="replace"))
        if _SECRET in told[0].replace("No results", "") and words[0] != "search":
            raise Touched(f"{words} told {told[0]!r}")
        if "unexpected" in told[1] or "Traceback" in told[1]:
            raise Touched(f"{words}: {told[1]!r}")

    def check(self, case: bytes) -> None:
        asked = json.loads(case)
        folder = self.clone / ".qmd"
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        watch = Watch(self._watch, self._may_come)
        if asked["linked"] is not None:
            with contextlib.suppress(OSError):
                folder.symlink_to(self.format(asked["linked"]))
        else:
            folder.mkdir()
            (folder / "index.yml").write_text(asked["yaml"])
            for place, kind, target, number in asked["tree"]:
                self.put(folder / place, kind, target, number)
                if kind == "second name":
                    # The link itself changes what the watch sees of its other name.
                    watch = Watch(self._watch, self._may_come)
        for words in asked["commands"]:
            self.run(words)
        (self.home / "clone/a.md").write_text("# Alpha\n")
        watch.check()


@contextmanager
def open_projects(folder: Path) -> Iterator[Callable[[bytes], None]]:
    """Commands in a clone whose `.qmd` is hostile: one line, and nothing outside is touched."""
    kept, place = dict(os.environ), Path.cwd()
    try:
        yield _World(folder).check
    finally:
        os.chdir(place)
        os.environ.clear()
        os.environ.update(kept)


# --- hubs and model servers -----------------------------------------------------------------------

_WORDS = (
    *("..", "../../x", "/etc/passwd", "C:\\x", "a\0b", "x" * 5000, "", ".", "\x1b]0;x\x07", "-1", "1e999", "NaN", "0"),
    *(
        "99999999999999999999",
        "bytes 0-1/*",
        "bytes */0",
        '"' + "0" * 64 + '"',
        'W/"x"',
        "a/b",
        "%2e%2e%2f",
        "ü",
        "1.5",
    ),
)
_HEADERS = (
    *("ETag", "X-Linked-ETag", "X-Linked-Size", "X-Repo-Commit", "Content-Length", "Content-Range", "X-Error-Code"),
    *("Content-Encoding", "Retry-After", "Content-Disposition", "Content-Type", "Transfer-Encoding", "X-Error-Message"),
)
_STATUSES = (200, 200, 200, 206, 301, 302, 307, 308, 400, 401, 403, 404, 416, 429, 500, 503, 204, 304, 600)


def _printable(text: str) -> str:
    return (
        text.replace("\0", "%00").encode("latin-1", "replace").decode("latin-1").replace("\n", " ").replace("\r", " ")
    )


def hub_answers(dice: Dice) -> bytes:
    """What a hub answers one request after another, as JSON."""
    answers = []
    for _ in range(dice.randint(1, 3)):
        names = dice.sample(_HEADERS, dice.randint(0, 4))
        headers = {name: _printable(dice.choice(_WORDS)) for name in names}
        if dice.random() < 0.3:
            headers["Location"] = dice.choice(
                ("/x", "{hub}/y", "file:///etc/passwd", "//", "{hub}" + "/z" * 200, "ftp://x")
            )
        answers.append([dice.choice(_STATUSES), headers, dice.randrange(2000), dice.random() < 0.2])
    return json.dumps({"name": dice.choice(["model.onnx", "onnx/model.onnx"]), "answers": answers}).encode()


@contextmanager
def open_hub(folder: Path) -> Iterator[Callable[[bytes], None]]:
    """Asking for a file and fetching it: the bytes, or one line; nothing is written but the file asked for."""
    from qmd.plugins.models.fetch.hub import describe_file
    from qmd.plugins.models.fetch.transfer import fetch
    from tests.plugins.models.model_hub import Asked, Reply, serve_hub

    os.environ["no_proxy"] = "*"
    outside, inside = folder / "outside", folder / "outside/inside"
    inside.mkdir(parents=True)
    (outside / "precious").write_text(_SECRET)
    watch = Watch([outside], (inside,))
    with serve_hub() as hub:

        def check(case: bytes) -> None:
            asked_for = json.loads(case)
            answers = iter(asked_for["answers"])

            def reply(asked: Asked) -> Reply | None:
                status, headers, n_bytes, breaks_off = next(answers, (0, {}, 0, False))
                if not status:
                    return None if asked.number < 20 else Reply(404)
                headers = {name: value.replace("{hub}", hub.url) for name, value in headers.items()}
                return Reply(status, headers, b"x" * n_bytes, breaks_off or "Content-Length" in headers)

            hub.reply = reply
            hub.requests.clear()
            try:
                found = describe_file(hub.repository, asked_for["name"], "main", hub.url, sleep=lambda seconds: None)
                if found is not None:
                    fetch(found, inside / "file", sleep=lambda seconds: None)
            except QmdError as exc:
                if "\n" in exc.message or len(exc.message) > 1_000:
                    raise Touched(f"a message that is no line: {exc.message!r}") from exc
            if {path.name for path in inside.iterdir()} - {"file"}:
                raise Touched(f"made {sorted(inside.iterdir())}")
            (inside / "file").unlink(missing_ok=True)
            watch.check()

        yield check


_ANSWERS: tuple[object, ...] = (
    *({}, [], None, 1, "x", {"data": []}, {"data": None}, {"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}),
    *({"data": [{"index": 0, "embedding": [1.0, 0.5]}]}, {"results": [{"index": 0, "relevance_score": 0.5}]}),
    *(
        {"results": [{"index": 9**9, "relevance_score": "x"}]},
        {"choices": [{"message": {"content": "lex: a\nvec: b"}}]},
    ),
    *({"choices": [{"message": {"content": None}}]}, {"error": {"message": "no\nsuch\x1b[2J model"}}),
)


def server_answer(dice: Dice) -> bytes:
    """What a model server answers to everything: the role, the status and a body."""
    body = json.dumps(dice.choice(_ANSWERS)).encode()
    change = dice.random()
    if change < 0.5:
        body = generators.mutate(body, dice)
    elif change < 0.6:
        body = b"[" * dice.randrange(200_000)
    elif change < 0.7:
        row = {"index": 0, "embedding": [dice.choice((0.1, 1e308, -1e308)) for _ in range(dice.choice((1, 9000)))]}
        body = json.dumps({"data": [row]}).encode()
    return b"%d %d\n" % (dice.randrange(3), dice.choice(_STATUSES)) + body


@contextmanager
def open_servers(folder: Path) -> Iterator[Callable[[bytes], None]]:
    """A model server's answer becomes numbers that can be used, lines, or one line of refusal."""
    import numpy as np

    from qmd.plugins.servers.client import RemoteClient
    from qmd.plugins.servers.engines import RemoteEmbedder, RemoteReranker
    from qmd.plugins.servers.expander import RemoteExpander
    from qmd.plugins.servers.settings import RemoteSettings

    now: list[bytes] = [b""]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            first, _, body = now[0].partition(b"\n")
            self.send_response(int(first.split()[1]))
            self.send_header("Content-Length", str(len(body)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def client(purpose: str) -> RemoteClient:
        settings = RemoteSettings(f"http://127.0.0.1:{http.server_port}", "m", timeout_s=5.0)
        return RemoteClient(settings, purpose, sleep=lambda seconds: None)

    def check(case: bytes) -> None:
        now[0] = case
        role = int(case.split(maxsplit=1)[0])
        try:
            if role == 0:
                vectors = RemoteEmbedder(client("embedding")).embed_documents(["a"])
                if not np.isfinite(vectors).all() or not (np.abs(np.linalg.norm(vectors, axis=1) - 1) < 1e-3).all():
                    raise Touched("vectors that cannot be compared")
            elif role == 1:
                scores = RemoteReranker(client("reranking")).score("q", ["a"])
                if not all(score is None or 0 <= score <= 1 for score in scores):
                    raise Touched(f"scores {scores}")
            else:
                RemoteExpander(client("expansion")).expand("q")
        except QmdError as exc:
            if "\n" in exc.message or "\x1b" in exc.message or len(exc.message) > 1_000:
                raise Touched(f"a message that is no line: {exc.message!r}") from exc

    try:
        yield check
    finally:
        http.shutdown()
        http.server_close()
