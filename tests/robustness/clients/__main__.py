"""Public MCP clients beside `qmd mcp`: does each list the tools, call each of them, and get whole answers and errors?

    python -m tests.robustness.clients FOLDER [--only NAME] [--transport stdio|http] [--keep FILE]

FOLDER holds the clients, each where it is named below; what is missing is named and left out. No model is called.

    cd FOLDER
    python -m venv mcp && mcp/bin/pip install 'mcp<2'
    python -m venv fastmcp && fastmcp/bin/pip install 'fastmcp>=4' 'mcp>=2'
    python -m venv smolagents && smolagents/bin/pip install 'smolagents[mcp]' 'mcp[ws]<2'
    python -m venv pydantic-ai && pydantic-ai/bin/pip install 'pydantic-ai-slim[mcp]>=2'
    python -m venv langchain && langchain/bin/pip install langchain-mcp-adapters
    npm install --prefix typescript-1 @modelcontextprotocol/sdk@1
    npm install --prefix typescript-2 @modelcontextprotocol/client@2
    pip install bpe-openai                                    # here: counts o200k tokens; without it qmd's own estimate

The index is of a folder of notes, an inbox that agents may write to, and a book of 3 MB. The table has a line for each
call and a column for each client and transport, with the o200k tokens of what the client hands on: text/object of an
SDK, of a framework what its model would see. `--keep` writes all answers. The status is 1 when a call failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from qmd.analysis.tokens import count_tokens as estimated
from tests.processes import environment
from tests.robustness.side_by_side import free_ports

_HERE = Path(__file__).parent
_PYTHON = str(_HERE / "python_clients.py")
CLIENTS = {
    "Python SDK 1": ("mcp", (_PYTHON, "sdk_1")),
    "Python SDK 2": ("fastmcp", (_PYTHON, "sdk_2")),
    "Python SDK 2, handshake": ("fastmcp", (_PYTHON, "sdk_2_handshake")),
    "fastmcp": ("fastmcp", (_PYTHON, "fastmcp")),
    "smolagents": ("smolagents", (_PYTHON, "smolagents")),
    "Pydantic AI": ("pydantic-ai", (_PYTHON, "pydantic_ai")),
    "LangChain": ("langchain", (_PYTHON, "langchain")),
    "TypeScript SDK 1": ("typescript-1", (str(_HERE / "typescript_client.mjs"), "1")),
    "TypeScript SDK 2": ("typescript-2", (str(_HERE / "typescript_client.mjs"), "2")),
}
"""Where each is installed, and what calls it."""
_CHAPTERS, _CHAPTER_BYTES = 125, 25_000
_LIMITER = """# Rate limiter

It has a sliding window of sixty seconds, see [[Pricing]].

## Burst

A burst of twenty calls is let through.

## Storage

Counters live in memory.
"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One call; `tool` None lists the tools."""

    name: str
    tool: str | None
    arguments: Mapping[str, object] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    """In every form of the answer, or in the error."""
    fails: bool = False
    least_chars: int = 0
    cancel_after_s: float | None = None
    optional: str = ""
    """Asked only where the tool or its argument is listed: TOOL or TOOL.ARGUMENT."""


def _steps(docid: str, mark: str) -> tuple[Step, ...]:
    whole: dict[str, object] = {"pattern": "book/*.md", "maxBytes": 10_000_000, "maxTokens": 10_000_000}
    last = f"chapter-{_CHAPTERS - 1:03}"
    limiter = {"file": "notes/limiter.md"}
    new = " ".join(random.Random(mark).sample(_words(), 30))
    return (
        Step(name="list", tool=None, says=("query", "get", "multi_get", "status", "links", "related")),
        Step(name="query", tool="query", arguments={"query": "sliding window"}, says=("limiter.md", "sixty seconds")),
        Step(name="query, nothing", tool="query", arguments={"query": "xylophone zebrafish"}, says=()),
        Step(name="get file", tool="get", arguments=limiter, says=("sixty seconds", "Counters")),
        Step(name="get path", tool="get", arguments={"path": "notes/limiter.md"}, says=("sixty seconds",)),
        Step(name="get #docid", tool="get", arguments={"file": docid}, says=("sixty seconds",)),
        Step(name="get #Heading", tool="get", arguments={"file": "notes/limiter.md#Burst"}, says=("twenty calls",)),
        Step(name="get outline", tool="get", arguments={**limiter, "outline": True}, says=("Burst", "Storage"),
             optional="get.outline"),
        Step(name="multi_get", tool="multi_get", arguments={"pattern": "notes/*.md"}, says=("sixty", "per-seat")),
        Step(name="links", tool="links", arguments=limiter, says=("pricing.md",)),
        Step(name="related", tool="related", arguments=limiter, says=(".md",)),
        Step(name="status", tool="status", says=("notes", "book")),
        Step(name="pack", tool="pack", arguments={"query": "sliding window"}, says=("sixty seconds",), optional="pack"),
        Step(name="add", tool="add", arguments={"text": new, "title": mark, "to": "inbox"}, says=("inbox",),
             optional="add"),
        Step(name="add, refused", tool="add", arguments={"text": new, "to": "book"}, says=("book",), fails=True,
             optional="add"),
        Step(name="missing note", tool="get", arguments={"file": "notes/limitr.md"}, says=("limiter.md",), fails=True),
        Step(name="wrong argument", tool="status", arguments={"shout": True}, says=("shout",), fails=True),
        Step(name="cancel", tool="multi_get", arguments=whole, says=(last,), cancel_after_s=0.1),
        Step(name="next call", tool="status", says=("notes", "book")),
        Step(name="3 MB", tool="multi_get", arguments=whole, says=(last,), least_chars=3_000_000),
        Step(name="after it", tool="status", says=("notes", "book")),
    )  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one call came to."""

    is_right: bool
    shown: str


def _judge(step: Step, said: Mapping[str, Any] | None) -> Outcome:
    """In a table's cell: tokens of each form, or what went wrong."""
    if said is None:
        return Outcome(False, "NO ANSWER")
    error = " ".join(str(said.get("error", "")).split())
    if "cancelled" in said:
        return Outcome(said["cancelled"], "left" if said["cancelled"] else "STILL RUNNING after 30 s")
    if step.fails:
        # What smolagents is told as an error, it hands on as an answer.
        told = error or "".join(said.get("forms", ()))
        is_told = bool(told) and all(word in told for word in step.says)
        return Outcome(is_told, ("error" if error else "error as text") if is_told else f"ERROR? {told[:60]}")
    if error:
        return Outcome(False, f"FAILED {error[:80]}")
    forms = [json.dumps(said["tools"], ensure_ascii=False)] if "tools" in said else said["forms"]
    for form in forms:
        lacking = [word for word in step.says if word not in form]
        if lacking:
            return Outcome(False, f"LACKS {lacking[0]}")
    if len(forms[0]) < step.least_chars:
        return Outcome(False, f"CUT at {len(forms[0]):,}")
    if len(forms[0]) > 1_000_000:
        return Outcome(True, f"{len(forms[0]) / 1e6:.2f} MB")
    tokens = "/".join(str(_count(form)) for form in forms)
    return Outcome(True, f"{tokens} in {said['seconds']:.1f} s" if step.name == "next call" else tokens)


@cache
def _tokenizer() -> Any:
    with suppress(ImportError):
        from bpe_openai import get_encoding

        return get_encoding("o200k_base")
    return None


def _count(text: str) -> int:
    return len(_tokenizer().encode(text)) if _tokenizer() else estimated(text)


@cache
def _words() -> list[str]:
    parts = ("ba", "de", "fi", "go", "lu", "ma", "ne", "po", "ra", "si", "tu", "vo")
    return [one + two + three for one in parts for two in parts for three in parts]


def _write_world(home: Path) -> None:
    dice = random.Random(1)
    texts = {
        "notes/limiter.md": _LIMITER,
        "notes/pricing.md": "# Pricing\n\nWe chose per-seat pricing after the interviews. See [[limiter]].\n",
        **{f"notes/{word}.md": f"# {word}\n\n{' '.join(dice.choices(_words(), k=60))}\n" for word in _words()[:20]},
        "inbox/first.md": "# First\n\nAn inbox.\n",
    }
    for number in range(_CHAPTERS):
        lines = (" ".join(dice.choices(_words(), k=14)) for _ in range(_CHAPTER_BYTES // 98))
        texts[f"book/chapter-{number:03}.md"] = f"# Chapter {number}\n\n" + "\n".join(lines) + "\n"
    for name, text in texts.items():
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _index(home: Path, env: Mapping[str, str]) -> str:
    """The docid of a note in a new index of the world."""

    def run(*words: str) -> str:
        command = (sys.executable, "-m", "qmd", *words)
        return subprocess.run(command, cwd=home, env=env, check=True, capture_output=True, text=True).stdout

    for name in ("notes", "inbox", "book"):
        run("collection", "add", str(home / name), "--name", name)
    run("embed", "-c", "notes")
    config = home / ".config" / "qmd" / "index.yml"
    written = config.read_text(encoding="utf-8")
    config.write_text(written.replace("  inbox:\n", "  inbox:\n    agents_may_write: true\n"), encoding="utf-8")
    return str(json.loads(run("search", "sliding window", "--json"))[0]["docid"])


@contextmanager
def _server(home: Path, env: Mapping[str, str]) -> Iterator[str]:
    (port,) = free_ports(1)
    command = (sys.executable, "-m", "qmd", "mcp", "--http", "--port", str(port))
    process = subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


def _ask(program: Sequence[str], server: Mapping[str, object], steps: Sequence[Step]) -> tuple[list[Any], str]:
    """The answers of a client as far as it came, and the last line that it said on stderr."""
    plan = json.dumps({"server": server, "steps": [asdict(step) for step in steps]})
    # Away from here: an index of this checkout would be taken.
    apart = tempfile.gettempdir()
    try:
        done = subprocess.run(program, input=plan, cwd=apart, capture_output=True, text=True, timeout=300, check=False)
        out, err, status = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        out, err, status = (late.stdout or b"").decode(), "it did not end within 300 seconds", 1
    answers = [json.loads(line) for line in out.splitlines() if line.startswith('{"step"')]
    return answers, err.strip().splitlines()[-1] if status and err.strip() else ""


def _is_asked(step: Step, tools: Mapping[str, Any]) -> bool:
    tool, _, argument = step.optional.partition(".")
    return not tool or (tool in tools and (not argument or argument in tools[tool].get("properties", {})))


def _try_client(
    program: Sequence[str], server: Mapping[str, object], steps: Sequence[Step]
) -> tuple[dict[str, Outcome], object]:
    (first, *_), _ = _ask(program, server, steps[:1])[0] or [{}], ""
    asked = [step for step in steps if _is_asked(step, first.get("tools", {}))]
    answers, complaint = _ask(program, server, asked)
    by_name = {answer["step"]: answer for answer in answers}
    outcomes = {step.name: _judge(step, by_name.get(step.name)) for step in asked}
    outcomes["end"] = Outcome(not complaint, complaint[:80] or "clean")
    return outcomes, answers


def _print_table(columns: Mapping[str, Mapping[str, Outcome]], steps: Sequence[Step]) -> None:
    for column, outcomes in columns.items():
        right = sum(one.is_right for one in outcomes.values())
        print(f"{column}: {right} of {len(outcomes)}")
    names = [*(step.name for step in steps), "end"]
    print("", "| call |" + "".join(f" {column} |" for column in columns), sep="\n")
    print("|---|" + "---|" * len(columns))
    for name in names:
        cells = (outcomes.get(name, Outcome(True, "–")).shown.replace("|", "/") for outcomes in columns.values())
        print(f"| {name} |" + "".join(f" {cell} |" for cell in cells))


def _program(folder: Path, place: str, words: Sequence[str]) -> list[str] | None:
    where = (folder / place).resolve()
    if words[0].endswith(".mjs"):
        return ["node", words[0], str(where), words[1]] if (where / "node_modules").exists() else None
    python = where / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    return [str(python), *words] if python.exists() else None


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, try every client over both transports, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="folder of the installed clients")
    parser.add_argument("--only", action="append", help="name of a client; may be repeated")
    parser.add_argument("--transport", choices=("stdio", "http"), action="append")
    parser.add_argument("--keep", type=Path, help="file for all answers, as JSON")
    options = parser.parse_args(argv)
    columns: dict[str, dict[str, Outcome]] = {}
    transcripts: dict[str, object] = {}
    steps: tuple[Step, ...] = ()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        home = Path(place).resolve()
        env = environment(home, QMD_DAEMON="0")
        _write_world(home)
        docid = _index(home, env)
        with _server(home, env) as url:
            stdio = {"command": [sys.executable, "-m", "qmd", "mcp"], "env": env}
            for name, (where, words) in CLIENTS.items():
                if options.only and name not in options.only:
                    continue
                if (program := _program(options.folder, where, words)) is None:
                    print(f"{name}: not installed in {options.folder / where}", file=sys.stderr)
                    continue
                for transport, server in (("stdio", stdio), ("http", {"url": url})):
                    if options.transport and transport not in options.transport:
                        continue
                    column = f"{name}, {transport}"
                    print(column, file=sys.stderr, flush=True)
                    steps = _steps(docid, column)
                    columns[column], transcripts[column] = _try_client(program, server, steps)
    if options.keep:
        options.keep.write_text(json.dumps(transcripts, ensure_ascii=False, indent=1), encoding="utf-8")
    _print_table(columns, steps)
    return int(any(not one.is_right for outcomes in columns.values() for one in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
