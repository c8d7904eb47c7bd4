"""What the fuzzer runs: each target makes a case from a number and hands it to the real code.

A target's check raises for every outcome that a user must not meet; what the code may refuse it refuses as a `QmdError`
of one line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qmd.errors import ConfigError, QmdError
from tests.processes import environment
from tests.robustness import answers, foreign_encoders, foreign_models, generators, settings, strangers

if TYPE_CHECKING:
    from qmd.plugins.models.formats.importing import ImportReport

Check = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Target:
    """One door into qmd."""

    name: str
    make: Callable[[random.Random, Sequence[bytes]], bytes]
    """A case, from dice and the contents of real files."""
    open: Callable[[Path], AbstractContextManager[Check]]
    """The check, which may keep files in a folder of its own."""


_LONGEST = 700
"""Characters of a message that quotes only what a file of somebody else says."""


class Wrong(Exception):
    """An outcome that no exception of the program tells."""


@contextmanager
def _only_qmd_errors(
    quoted: str = "", expected: type[QmdError] = QmdError, longest: float = math.inf
) -> Iterator[None]:
    """Let a refusal pass that is one line, unless the text that it may quote has several itself."""
    try:
        yield
    except expected as exc:
        if _is_broken(exc.message, quoted):
            raise Wrong(f"a message of several lines: {exc.message!r}") from exc
        if len(exc.message) > longest:
            raise Wrong(f"a message of {len(exc.message)} characters: {exc.message[:200]!r}") from exc


def _is_broken(message: str, quoted: str) -> bool:
    return "\n" in message and "\n" not in quoted


# --- files ----------------------------------------------------------------------------------------


def _file_case(dice: random.Random, real: Sequence[bytes]) -> bytes:
    return generators.file_name(dice) + b"\0" + generators.file_content(dice, real)


@contextmanager
def _open_files(folder: Path) -> Iterator[Check]:
    """Every file goes all the way: read, parsed, analysed, stored, cut, embedded; with whatever name it has."""
    from qmd.indexing.embed import embed_pending
    from qmd.indexing.update import update_collection
    from qmd.records import Collection
    from qmd.store.sqlite.opening import open_writer
    from tests.robustness.scenarios import EMBEDDER

    notes = folder / "notes"
    notes.mkdir()
    healthy = notes / "healthy.md"
    collection = Collection("fuzz", notes, pattern="**/*")
    with open_writer(folder / "index.sqlite") as writer:
        writer.database.run("PRAGMA synchronous = OFF")

        counter = itertools.count()

        def check(case: bytes) -> None:
            name, _, content = case.partition(b"\0")
            path = notes / os.fsdecode(name)
            path.write_bytes(content)
            number = next(counter)
            if number % 10 == 0:
                healthy.write_bytes(b"# Healthy\n\nword%d\n" % number)
            if number % 1_000 == 999:
                writer.cleanup()
            try:
                report = update_collection(writer, collection, verify=True)
                embedded = embed_pending(writer, EMBEDDER)
                stored = {document.path: document for document in writer.iter_documents()}
                if "healthy.md" not in stored:
                    raise Wrong("the other file is not indexed")
                if len(stored) + len(report.skipped) != 2:
                    raise Wrong(f"{len(stored)} stored, {len(report.skipped)} skipped")
                if any(_is_broken(line, path.name) for line in (*report.warnings, *embedded.warnings)):
                    raise Wrong(f"a warning of several lines: {report.warnings}")
                for document in stored.values():
                    if len(writer.texts([document.hash])[document.hash]) != document.size:
                        raise Wrong("another text is stored")
            finally:
                path.unlink(missing_ok=True)

        yield check


# --- configuration --------------------------------------------------------------------------------


@contextmanager
def _open_configuration(folder: Path) -> Iterator[Check]:
    """Whatever the file holds: the configuration, mirrored into an index and editable, or a `ConfigError`."""
    from qmd.config import edits
    from qmd.config.settings import load_config
    from qmd.store.sqlite.opening import open_writer
    from tests.robustness.scenarios import World

    world = World(folder)
    world.folder.mkdir()
    locations = world.locations
    with open_writer(locations.database) as writer:
        writer.database.run("PRAGMA synchronous = OFF")

        def check(case: bytes) -> None:
            locations.config_file.write_bytes(case)
            with _only_qmd_errors(expected=ConfigError):
                config = load_config(locations)
                writer.mirror_config(config.collections, config.global_context, config.digest)
                known = [collection.name for collection in writer.collections()]
                if sorted(known) != sorted(collection.name for collection in config.collections):
                    raise Wrong(f"the index holds {known}")
                edits.set_global_context(locations, "a note")
                if load_config(locations).global_context != "a note":
                    raise Wrong("the edit is lost")

        yield check


# --- queries and globs ----------------------------------------------------------------------------

_NAMES = ("a" * 120, "a" * 60 + "b", "ab", "n1", "n2", "[x]", "{a,b}", "日本", "a b", "x#y", "!(a)")


@contextmanager
def _indexed(folder: Path) -> Iterator[Path]:
    """A small index with vectors, and the notes that it was made of."""
    from qmd.indexing.embed import embed_pending
    from qmd.indexing.update import update_collection
    from qmd.records import Collection
    from qmd.store.sqlite.opening import open_writer
    from tests.robustness.scenarios import EMBEDDER

    dice = random.Random(5)
    notes = folder / "notes"
    for number, name in enumerate(_NAMES):
        path = notes / ("deep" if number % 2 else ".") / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(generators.file_content(dice, ()))
    with open_writer(folder / "index.sqlite") as writer:
        collection = Collection("notes", notes, context={"": "a note"})
        writer.mirror_config([collection], None, "x")
        update_collection(writer, collection)
        embed_pending(writer, EMBEDDER)
    yield notes


@contextmanager
def _open_queries(folder: Path) -> Iterator[Check]:
    from qmd.inference.base import Engines
    from qmd.retrieval.lookup import resolve_document
    from qmd.retrieval.pipeline import search
    from qmd.retrieval.query import parse_query
    from qmd.retrieval.request import SearchRequest
    from qmd.store.sqlite.opening import open_reader
    from tests.fakes import OverlapReranker
    from tests.robustness.scenarios import EMBEDDER

    engines = Engines(EMBEDDER, OverlapReranker(), None)
    with _indexed(folder), open_reader(folder / "index.sqlite") as reader:

        def check(case: bytes) -> None:
            # As a command line brings it in.
            text = case.decode("utf-8", "surrogateescape")
            with _only_qmd_errors(text):
                query = parse_query(text)
                for options in (SearchRequest(mode="lexical"), SearchRequest(explain=True)):
                    response = search(reader, engines, query, options)
                    for hit in response.hits:
                        if not 0 <= hit.relevance <= 1:
                            raise Wrong(f"relevance {hit.relevance}")
            with _only_qmd_errors(text):
                resolve_document(reader, text)

        yield check


@contextmanager
def _open_globs(folder: Path) -> Iterator[Check]:
    from qmd.ingest.scan import scan_collection
    from qmd.records import Collection
    from qmd.retrieval.lookup import resolve_many
    from qmd.store.sqlite.opening import open_reader

    with _indexed(folder) as notes, open_reader(folder / "index.sqlite") as reader:

        def check(case: bytes) -> None:
            mask = case.decode("utf-8", "surrogateescape")
            with _only_qmd_errors(mask):
                resolve_many(reader, mask)
            with _only_qmd_errors(mask):
                scan_collection(Collection("notes", notes, pattern=mask))
            with _only_qmd_errors(mask):
                scan_collection(Collection("notes", notes, pattern="**/*.md", ignore=(mask,)))

        yield check


# --- messages -------------------------------------------------------------------------------------

_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "opening",
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}},
}


class _Session:
    """`qmd mcp` as a process, opened as a client does."""

    def __init__(self, folder: Path) -> None:
        own = {"INDEX_PATH": str(folder / "index.sqlite"), "QMD_CONFIG_DIR": str(folder / "config")}
        own |= {"XDG_CACHE_HOME": str(folder / "cache"), "QMD_DAEMON": "off"}
        self._errors = (folder / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "qmd", "mcp"],
            cwd=folder,
            env=environment(folder, **own),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._n_pings = 0
        self.exchange(json.dumps(_INITIALIZE).encode(), "opening")
        self.exchange(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def exchange(self, lines: bytes, awaited: str | None = None) -> None:
        """Send lines and, if no answer is awaited, a ping; return when that is answered.

        Raises:
            Wrong: The process ended, or wrote something else than one JSON object per line.
        """
        if awaited is None:
            self._n_pings += 1
            awaited = f"ping {self._n_pings}"
            lines += b'\n{"jsonrpc":"2.0","method":"ping","id":"%s"}' % awaited.encode()
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(lines + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if isinstance(answer, dict) and answer.get("id") == awaited:
                self._look_for_tracebacks()
                return
        status = self._process.wait()
        self._look_for_tracebacks()
        raise Wrong(f"the session ended with status {status}")

    def _look_for_tracebacks(self) -> None:
        self._errors.seek(0)
        said = self._errors.read()
        if b"Traceback" in said:
            raise Wrong(f"the server says: {said[-600:].decode(errors='replace')}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


@contextmanager
def _open_messages(folder: Path) -> Iterator[Check]:
    """Each case goes to a lasting session, which must still answer a ping after it; a new one after a failure."""
    with _indexed(folder):
        sessions = [_Session(folder)]

        def check(case: bytes) -> None:
            if not sessions:
                sessions.append(_Session(folder))
            try:
                sessions[0].exchange(case)
            except BaseException:
                sessions.pop().close()
                raise

        try:
            yield check
        finally:
            for session in sessions:
                session.close()


# --- models from strangers ------------------------------------------------------------------------


class _Surroundings:
    """A home with files of others, the models in it, and a look at whether anything but those changed.

    What comes in lies in a folder called `name`.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._name = name
        self.home = folder / "home"
        self.models = self.home / ".cache" / "qmd" / "models"
        self.incoming = folder / "incoming"
        for name in (".bashrc", "index.sqlite", ".ssh/authorized_keys", ".cache/qmd/index.sqlite", "notes/a.md"):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(foreign_models.MARK)
        self._before = self._look()

    def _look(self) -> list[tuple[str, int, bytes]]:
        found = []
        for path in sorted(self.home.parent.rglob("*")):
            if not path.is_relative_to(self.models) and not path.is_relative_to(self.incoming):
                held = path.read_bytes() if path.is_file() else b""
                found.append((str(path), path.lstat().st_mode, held))
        return found

    def place(self, entries: Sequence[foreign_models.Entry]) -> Path:
        """What was sent, as it lies after a download: the one archive or file of weights, else the folder."""
        folder = self.incoming / self._name
        folder.mkdir(parents=True)
        for name, kind, content in entries:
            path = Path(os.path.normpath(folder / name.replace("\0", "")[:200]))
            if path == folder or not path.is_relative_to(folder) or os.path.lexists(path):
                continue
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                if kind == "pipe":
                    os.mkfifo(path)
                elif kind == "link":
                    path.symlink_to(os.fsdecode(content))
                elif kind == "hard":
                    path.hardlink_to(folder / os.fsdecode(content))
                else:
                    path.write_bytes(content)
        archive = next((path for path in folder.iterdir() if path.suffix in (".tar", ".gz", ".zip", ".gguf")), None)
        return archive or folder

    def check(self) -> None:
        """Nothing outside changed, nothing is left half-made, and no model holds what is others'.

        Raises:
            Wrong: Something is.
        """
        if os.path.lexists(foreign_models.ABSOLUTE) or self._look() != self._before:
            raise Wrong("something outside the folder of models changed")
        for path in self.models.rglob("*"):
            inside = path.relative_to(self.models)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise Wrong(f"'{inside}' is a link or a pipe")
            if inside.parts[0] == ".staging" and path.is_file() and path.suffix != ".lock":
                raise Wrong(f"'{inside}' is left behind")
            if inside.parts[0] != ".staging" and "--" not in inside.parts[0]:
                raise Wrong(f"'{inside}' is no place of a model")
            if path.is_file() and foreign_models.MARK in path.read_bytes():
                raise Wrong(f"'{inside}' holds what was never handed in")

    def clear(self) -> None:
        """Take away what came in and what was made of it."""
        for folder in (self.models, self.incoming):
            shutil.rmtree(folder, ignore_errors=True)


_TEXTS = ("", "the sea", "Ünïcödé ﬁ 世界 [CLS] <s> \0 \ud800 🙂", "a b " * 400, "x" * 3_000)


def _use(report: ImportReport) -> None:
    """Embed a few texts with an imported encoder.

    Raises:
        Wrong: The vectors are no numbers, or of no length.
    """
    import numpy as np

    from qmd.inference.engines.embedder import load_embedder

    if report.model.record.role != "embed":
        return
    embedder = load_embedder(report.folder, report.model.record, allow_gpu=False)
    vectors = np.vstack([embedder.embed_documents(_TEXTS), embedder.embed_queries(["the sea"])])
    embedder.token_starts("the other sea " * 100)
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(vectors).all() or not (np.isclose(lengths, 1, atol=1e-3) | (lengths == 0)).all():
        raise Wrong(f"vectors of lengths {lengths}")


@contextmanager
def _open_models(folder: Path, name: str = "Qwen3-Reranker-0.6B") -> Iterator[Check]:
    """What a stranger sends is imported as a command would, listed and verified: done, or refused in one line."""
    from qmd.plugins.models.fetch.archives import import_model
    from qmd.plugins.models.formats.importing import import_weights
    from qmd.plugins.models.formats.sources import find_files, import_sources, importable_files
    from qmd.plugins.models.inventory import list_models, verify_model

    around = _Surroundings(folder, name)

    def check(case: bytes) -> None:
        try:
            source = around.place(foreign_models.unpack(case))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with _only_qmd_errors(longest=_LONGEST):
                    sources = import_sources(str(source), around.models, around.home, {})
                    for one in sources:
                        _use(import_weights(one.path, around.models, address=one.address, name="m"))
                    if not sources:
                        import_model(source, around.models)
                find_files(source, around.home, {})
                importable_files(source if source.is_dir() else source.parent, around.home, {})
                for state in list_models(around.models):
                    if state.is_present and state.record.tier != "built-in":
                        verify_model(state.record, around.models)
            around.check()
        finally:
            around.clear()

    yield check


TARGETS = {
    target.name: target
    for target in (
        Target("files", _file_case, _open_files),
        Target("configurations", lambda dice, _: generators.configuration(dice), _open_configuration),
        Target("queries", lambda dice, _: generators.query_text(dice), _open_queries),
        Target("globs", lambda dice, _: generators.glob(dice), _open_globs),
        Target("weights", lambda dice, _: foreign_models.weights(dice), _open_models),
        Target("encoders", lambda dice, _: foreign_encoders.encoders(dice), partial(_open_models, name="encoder")),
        Target("archives", lambda dice, _: foreign_models.archives(dice), _open_models),
        Target("messages", lambda dice, _: generators.message_lines(dice), _open_messages),
        Target("projects", lambda dice, _: strangers.project(dice), strangers.open_projects),
        Target("hub", lambda dice, _: strangers.hub_answers(dice), strangers.open_hub),
        Target("answers", lambda dice, _: answers.case(dice), answers.open_answers),
        Target("settings", lambda dice, _: settings.settings_case(dice), settings.open_settings),
        Target("servers", lambda dice, _: strangers.server_answer(dice), strangers.open_servers),
    )
}
