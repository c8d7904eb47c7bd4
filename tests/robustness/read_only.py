"""Folders that cannot be written: each command works or ends in one line, a search answers, and nothing is lost.

    python -m tests.robustness.read_only [--tries 200] [--seed 1] [--only WORD]

A try is one command in one state of an index while one or several folders are read-only: by a mount that only the
command sees, or by permissions for the user 65534. Both need root on Linux. Afterwards the notes and the configuration
are as before or as the command says that it changed them, and once all can be written again the index is completed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qmd.errors import EXIT_OK
from tests.processes import environment
from tests.robustness.report import Row, print_table, with_progress

OTHER_USER = 65_534

_PLACES: Mapping[str, tuple[str, ...]] = {
    "notes": ("notes",),
    "index": ("cache/qmd",),
    "cache": ("cache",),
    "config": ("config",),
    "models": ("models",),
    "project": ("project",),
    "home": (".",),
    "index and notes": ("notes", "cache/qmd"),
    "cache and config": ("cache", "config"),
}
"""What is read-only, as folders below the home."""

_READS = (
    ("search", "lighthouse", "--json"), ("query", "lighthouse", "--json", "--no-rerank"), ("get", "notes/a.md"),
    ("vsearch", "lighthouse"), ("multi-get", "notes/*.md"), ("ls", "notes"), ("status",), ("collection", "list"),
    ("links", "notes/a.md"), ("related", "notes/a.md"), ("pack", "lighthouse"), ("mcp",), ("context", "list"),
)  # fmt: skip
"""Commands that answer whatever cannot be written."""
_WRITES = (
    ("index",), ("update",), ("update", "--verify"), ("index", "--verify"), ("embed",), ("embed", "--force"),
    ("cleanup",), ("add", "-", "--to", "notes/a.md"), ("add", "a new note"), ("collection", "add", "more"),
    ("collection", "rename", "notes", "renamed"), ("context", "add", "/", "a note"), ("install", "claude", "--yes"),
    ("install", "codex", "--yes"), ("trust", "--yes"), ("models", "list"), ("models", "verify"),
    ("models", "import", "model.gguf"), ("save", "mine", "lighthouse"), ("init",), ("doctor",),
    ("store", "copy", "cache/qmd/index.sqlite", "copy.sqlite"), ("hook", "prompt"), ("skill", "install", "--yes"),
    ("mcp",), ("completion", "install"), ("search", "lighthouse", "--json"), ("query", "lighthouse", "--json"),
)  # fmt: skip

_STATES = ("clean", "changed", "killed", "none")
"""Of the index: complete; behind the notes; with a log that a killed writer left; not there."""

_ACCEPTED = (0, 1, 2, 3, 4, 5)
_CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
_CALLS = {"query": {"query": "lighthouse"}, "get": {"path": "notes/a.md"}, "status": {}}
_MESSAGES: Sequence[dict[str, object]] = (
    {"id": 1, "method": "initialize", "params": _CLIENT},
    {"method": "notifications/initialized"},
    *(
        {"id": at, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(_CALLS.items(), start=2)
    ),
)

_KILLED = """
import os, sys
from pathlib import Path
from qmd.indexing.update import update_collection
from qmd.store.opening import open_writer
writer = open_writer(Path(sys.argv[1]))
for collection in writer.collections():
    update_collection(writer, collection)
os._exit(0)
"""
"""An update whose process ends before it closes the index, so that its log stays."""


@dataclass
class Home:
    """A home with notes and their index, in which commands run as root or as another user."""

    folder: Path
    uid: int | None

    @property
    def environ(self) -> dict[str, str]:
        """Variables that put everything below the home."""
        places = {"XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache", "QMD_MODELS_DIR": "models"}
        own = {name: str(self.folder / place) for name, place in places.items()}
        return environment(self.folder, QMD_DAEMON="off", QMD_OFFLINE="1", USER="someone", **own)

    @property
    def index(self) -> Path:
        """The file of the index."""
        return self.folder / "cache" / "qmd" / "index.sqlite"

    def run(self, words: Sequence[str], locked: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        """Run `qmd WORDS` while some folders are read-only."""
        return self.start([sys.executable, "-m", "qmd", *words], locked, _input(words))

    def start(self, command: Sequence[str], locked: Sequence[str], text: str) -> subprocess.CompletedProcess[str]:
        """Run a program while some folders are read-only."""
        script, places = "", [str(self.folder / place) for place in locked]
        if self.uid is None:
            for at, _ in enumerate(places, start=1):
                script += f'mount --bind "${at}" "${at}" && mount -o remount,bind,ro "${at}" && '
        else:
            for place in places:
                _permit(Path(place), writable=False)
            script += _reachable()
        become = "" if self.uid is None else f"setpriv --reuid {self.uid} --regid {self.uid} --clear-groups "
        script += f'shift {len(places)} && cd "$PWD" && exec {become}"$@"'
        try:
            return subprocess.run(
                ["unshare", "--mount", "sh", "-c", script, "sh", *places, *command],
                cwd=self.folder / "project" if "trust" in command else self.folder,
                env=self.environ, input=text, text=True, errors="replace", capture_output=True, timeout=120,
                check=False,
            )  # fmt: skip
        finally:
            if self.uid is not None:
                for place in places:
                    _permit(Path(place), writable=True)

    def files(self, *places: str) -> dict[str, bytes]:
        """Return the files below some folders, without marks and locks."""
        kept = (path for place in places for path in (self.folder / place).rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in kept if not path.name.endswith((".lock", ".verified"))}


def _permit(place: Path, *, writable: bool) -> None:
    """Take or give back the right to write a folder and what lies in it."""
    for path in (place, *place.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o7777
            path.chmod(mode | 0o200 if writable else mode & ~0o222)


def _reachable() -> str:
    """Return shell commands that let other users reach a Python below root's home, for this command alone."""
    base = Path(sys.base_prefix).resolve()
    if not base.is_relative_to("/root"):
        return ""
    aside = "/mnt"
    return (
        f'mount --bind "{base}" {aside} && mount -t tmpfs -o mode=755 none /root && mkdir -p "{base}" &&'
        f' mount --move {aside} "{base}" && '
    )


def _input(words: Sequence[str]) -> str:
    if words[0] == "mcp":
        return "".join(f"{json.dumps({'jsonrpc': '2.0', **one})}\n" for one in _MESSAGES)
    if words[0] == "hook":
        return json.dumps({"prompt": "where is the lighthouse?", "cwd": "."})
    return "an entry from standard input\n"


def prepare(folder: Path, state: str, uid: int | None) -> Home:
    """Make a home in one of `_STATES`."""
    home = Home(folder, uid)
    for place in ("notes/deep", "more", "project/.qmd", "config", "cache/qmd", "models", ".claude", ".codex"):
        (folder / place).mkdir(parents=True)
    (folder / "notes" / "a.md").write_text("# A\n\nThe lighthouse stands on a rock.\n\n[b](deep/b.md)\n")
    (folder / "notes" / "deep" / "b.md").write_text("# B\n\nA river, and another lighthouse.\n")
    (folder / "more" / "m.md").write_text("# M\n\nmore\n")
    (folder / "project" / "p.md").write_text("# P\n\nproject\n")
    commands = "collections: {p: {path: ., update: 'echo hello'}}\n"
    (folder / "project" / ".qmd" / "index.yml").write_text(commands)
    (folder / ".claude" / "settings.json").write_text('{"theme": "dark"}\n')
    (folder / "model.gguf").write_bytes(b"GGUF of nothing")
    if uid is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)
    if state != "none":
        made = home.run(["index", str(folder / "notes")])
        assert made.returncode == EXIT_OK, made.stderr
    if state in ("changed", "killed"):
        (folder / "notes" / "c.md").write_text("# C\n\nA third lighthouse.\n")
        if uid is not None:
            os.chown(folder / "notes" / "c.md", uid, uid)
    if state == "killed":
        made = home.start([sys.executable, "-c", _KILLED, str(home.index)], (), "")
        assert made.returncode == EXIT_OK and home.index.with_name("index.sqlite-wal").stat().st_size, made.stderr
    return home


def wrong_with(home: Home, words: Sequence[str], locked: Sequence[str], state: str) -> Iterator[str]:
    """Yield what is wrong with one command while folders are read-only, and after it."""
    before = home.files("notes", "config", "project", ".claude", ".codex")
    try:
        ended = home.run(words, locked)
    except subprocess.TimeoutExpired:
        yield "no end after 120 s"
        return
    said = ended.stderr.strip()
    lines = [line for line in said.splitlines() if line.startswith("error:")]
    if ended.returncode not in _ACCEPTED or any(word in said for word in ("Traceback", "unexpected", "Exception")):
        yield f"status {ended.returncode}: {said[-400:]}"
    elif ended.returncode and words[0] != "hook" and (len(lines) != 1 or len(lines[0]) > 400):
        yield f"status {ended.returncode}, but not one line of error: {said[-400:]!r}"
    if words in _READS and state != "none" and (ended.returncode or not _answers(words, ended.stdout)):
        yield f"no answer: status {ended.returncode} {ended.stdout[-200:]!r} {said[-300:]!r}"
    after = home.files("notes", "config", "project", ".claude", ".codex")
    for path in before.keys() - after.keys():
        yield f"'{path}' is lost"
    # The configuration is the user's word, which an index that cannot be written now takes over later.
    edited = "index.yml" if words[0] in ("context", "collection") else "-"
    if ended.returncode:
        for path in after:
            if path in before and after[path] != before[path] and not path.endswith(edited):
                yield f"'{path}' has changed, though the command failed: {said[-200:]}"
    for path in after.keys() - before.keys():
        if not after[path] or Path(path).name.startswith("."):
            yield f"'{path}' is left behind, status {ended.returncode}"
    if words[:2] == ("collection", "rename") and not ended.returncode:
        return
    indexed = home.run(["index", str(home.folder / "notes")])
    found = json.loads(home.run(["search", "lighthouse", "--json"]).stdout or "[]")
    if indexed.returncode or len(found) < 2 + (state in ("changed", "killed")):
        yield f"afterwards: status {indexed.returncode}, {len(found)} found: {indexed.stderr[-300:]}"


def _answers(words: Sequence[str], out: str) -> bool:
    """Return whether a reading command shows what the notes contain."""
    if words[0] == "mcp":
        answers = [json.loads(line) for line in out.splitlines()]
        results = {one.get("id"): one.get("result", {}) for one in answers}
        texts = [json.dumps(results.get(number, {})) for number in (2, 3)]
        return all("lighthouse" in text for text in texts) and not any(
            results.get(number, {}).get("isError", True) for number in (2, 3, 4)
        )
    if words[0] in ("search", "query"):
        return len(json.loads(out)) >= 2
    wanted = {"context": "", "status": "notes", "collection": "notes", "ls": "a.md", "links": "b.md", "related": ""}
    return wanted.get(words[0], "lighthouse") in out


def cases(only: str | None) -> list[tuple[str, Sequence[str], str, bool]]:
    """Return every (place, command, state of the index, whether by permissions), in an order that mixes them."""
    found: list[tuple[str, Sequence[str], str, bool]] = [
        (place, words, state, by_permissions)
        for place in _PLACES
        for words in dict.fromkeys((*_READS, *_WRITES))
        for state in _STATES
        for by_permissions in (False, True)
        if only is None or only in f"{place} {' '.join(words)} {state} {'permissions' if by_permissions else 'mount'}"
    ]
    random.Random(0).shuffle(found)
    return found


def run(n_tries: int, seed: int, home: Path, only: str | None = None) -> list[Row]:
    """So many tries, one row for each way to be read-only; prepared states are copied."""
    home.chmod(0o755)
    all_cases = cases(only)
    begin = seed * n_tries % len(all_cases)
    chosen = (all_cases[begin:] + all_cases[:begin])[:n_tries]
    rows = {False: Row("read-only mounts"), True: Row("read-only permissions")}
    made = {
        (state, by): prepare(home / f"made-{state}-{by}" / "home", state, OTHER_USER if by else None)
        for state in _STATES
        for by in (False, True)
        if any(case[2:] == (state, by) for case in chosen)
    }
    for place, words, state, by in with_progress("read-only", chosen):
        template = made[state, by]
        # At the same path, as an index knows its folders by their paths.
        aside = template.folder.with_name("aside")
        subprocess.run(["cp", "-a", template.folder, aside], check=True)
        try:
            found = list(wrong_with(template, words, _PLACES[place], state))
        finally:
            shutil.rmtree(template.folder)
            aside.rename(template.folder)
        rows[by].tries += 1
        if found:
            rows[by].fail(f"qmd {' '.join(words)}, {place} read-only, index {state}: {'; '.join(found)}")
    return list(rows.values())


def is_possible() -> bool:
    """Return whether this process may mount folders for its commands."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    tried = subprocess.run(["unshare", "--mount", "mount", "--bind", "/tmp", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="part of a case: a place, a command, a state of the index, mount or permissions")
    options = parser.parse_args(argv)
    if not is_possible():
        parser.error("this needs root on Linux")
    with tempfile.TemporaryDirectory() as folder:
        return print_table(run(options.tries, options.seed, Path(folder).resolve(), options.only), shown=60)


if __name__ == "__main__":
    sys.exit(main())
