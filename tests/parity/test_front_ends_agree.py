"""The command line, Python, MCP, HTTP and the warm process give the same answer to a request."""

import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

import qmd
from qmd.app import freshness
from qmd.app.index import Index
from qmd.cli.invocation import Invocation
from qmd.inference import loader
from qmd.inference.base import Engines
from qmd.inference.records import Role
from qmd.inference.settings import EngineSettings
from tests.parity.front_ends import (
    Ask,
    Connect,
    Fetch,
    FrontEnd,
    Request,
    ask_command_line,
    http_front_end,
    mcp_front_end,
    python_front_end,
    run,
    warm_front_end,
)

FRUIT = ("apple", "banana", "cherry", "damson", "elderberry", "fig", "grape", "kiwi", "lemon", "mango", "olive", "pear")
FILES = {
    "garden/tomatoes.md": "---\ntags: [home, summer]\nstatus: ripe\nbeds: 3\ndue: 2026-08-01\n---\n# Tomatoes\n\n"
    "Tomatoes need sun and water every day.\n",
    "garden/deep/roses.md": "# Roses\n\n## Pruning\n\nPrune roses in winter.\n\n## Watering\n\nRoses drink little.\n",
    "garden/we ird & co/ü [1].md": "# Odd name\n\nA teapot in an oddly named place.\n",
    **{f"garden/fruit/{name}.md": f"# {name.title()}\n\nThe {name} ripens in autumn.\n" for name in FRUIT},
    "work/pricing.md": "# Pricing decision\n\nWe chose per-seat pricing after the March interviews.\n",
    "work/rust.md": "# Ownership\n\nOwnership is how Rust manages memory.\n\n```rust\nlet owner = 1;\n```\n",
    "work/2024-05/may-07.md": "# Interviews\n\nThe third interview was about pricing.\n",
    "work/limiter.md": "# Rate limiter\n\nThe rate limiter uses a sliding window.\nAuth token flow\n",
    "garden/old notes/limiter.md": "# Rate limiter\n\nThe rate limiter uses a sliding window.\nAuth token flow\n",
    "garden/beds.md": "# Beds\n\nSee [[roses]], [the red ones](tomatoes.md) and [[nowhere|this]].\n",
    "hidden/kiwi.md": "# Secret kiwi\n\nThe kiwi in this collection is searched only when it is named.\n",
}  # fmt: skip

FOUND = (
    Ask("how did we decide on the pricing?"),
    Ask("pricing", mode="lexical"),
    Ask("cost per user", mode="dense"),
    Ask("kiwi"),
    Ask("kiwi", mode="lexical"),
    Ask("kiwi", mode="dense"),
    Ask("collection:hidden kiwi"),
    Ask("collection:hidden kiwi", mode="lexical"),
    Ask("collection:hidden kiwi", mode="dense"),
    Ask("collection:garden kiwi", collections=("garden", "work")),
    Ask("kiwi", collections=("hidden",)),
    Ask("kiwi", collections=("hidden", "garden")),
    Ask("kiwi", collections=("hidden",), mode="lexical"),
    Ask("autumn fruit", candidate_limit=3),
    Ask("autumn fruit", candidate_limit=12),
    Ask("autumn fruit", candidate_limit=30, limit=30),
    Ask("autumn fruit", limit=1),
    Ask("sliding window", limit=1),
    Ask("sliding window", mode="lexical"),
    Ask("sliding window", mode="dense"),
    Ask("sliding window", collections=("work",)),
    Ask("autumn fruit", limit=30, rerank=False),
    Ask("autumn fruit", min_score=0.3),
    Ask("water", intent="gardening"),
    Ask("lex: ownership"),
    Ask("vec: what manages memory"),
    Ask("lex: roses\nvec: when to cut flowers"),
    Ask("intent: gardening\nlex: water\nhyde: roses need little water"),
    Ask("tag:summer tomatoes"),
    Ask("tag:summer tomatoes", mode="lexical"),
    Ask("status:ripe water"),
    Ask("-status:ripe water", mode="lexical"),
    Ask("water beds>=3", mode="dense"),
    Ask("pricing", filter="status:Ripe has:due", mode="dense"),
    Ask("water", filter='{"operator":"not","operand":{"field":"beds","operator":"lt","value":3}}'),
    Ask("", filter="beds<4 due:2026"),
    Ask("water statsu:ripe beds>2 localhost:8080"),
    Ask("path:deep water"),
    Ask("after:2020 pricing"),
    Ask('on:"7 May 2024"'),
    Ask('since:"last month" pricing'),
    Ask("interview of 7.5.2024"),
    Ask("interview of 7.5.2024", mode="lexical"),
    Ask("interview of 7.5.2024", mode="dense"),
    Ask("pricing", sort="date"),
    Ask("pricing sort:date", mode="lexical"),
    Ask("-roses water", mode="lexical"),
    Ask("+water roses", mode="lexical"),
    Ask('"sliding window"', mode="lexical"),
    Ask("tomatos"),
    Ask("zzzzqqqq"),
    Ask("what is the capital of Mongolia"),
    Ask("several words\non two lines"),
    Ask("teapot"),
)
FOUND_NOTHING = (
    Ask("collection:hidden kiwi", collections=("garden",)),
    Ask("collection:nowhere kiwi"),
    Ask("autumn fruit", min_score=1.0),
    Ask('lex: "rate limiter" -token'),
    Ask("before:1990 pricing"),
    Ask("water", filter="beds>3"),
    Ask("water", filter="bed:3 status:ripe", mode="lexical"),
    Ask("%%%%"),
    Ask("lex: ?\nvec: %%%%"),
    Ask("zzzzqqqq", mode="lexical"),
)
REFUSED = (
    Ask("water", filter="some words"),
    Ask("water", filter='{"field":"beds","operator":"gt"}'),
    Ask("water", filter='{"field":"beds","operator":"gt","value":true}', mode="dense"),
    Ask("water", filter='{"operator":"equals","field":"beds","value":1}'),
    Ask("pricing", sort="size"),
    Ask("pricing after:someday"),
    Ask("kiwi", collections=("nowhere",)),
    Ask("kiwi", collections=("gardn",), mode="lexical"),
    Ask("kiwi", collections=("garden", "nowhere")),
    Ask('lex: "open quote'),
    Ask("vec: not -this"),
    Ask("lex: a\nplain line"),
    Ask("intent: alone"),
    Ask("   "),
)
FETCHES = (
    Fetch("[[Roses#Pruning]]"),
    Fetch("Odd name"),
    Fetch("garden/deep/roses#pruning"),
    Fetch("[[red flowers|deep/roses#Pruning]]"),
    Fetch("Rate limiter"),
    Fetch("qmd://garden/tomatoes.md"),
    Fetch("garden/tomatoes.md"),
    Fetch("tomatoes.md"),
    Fetch("deep/roses.md", from_line=3, max_lines=2),
    Fetch("deep/roses.md:3:2"),
    Fetch("deep/roses.md:3"),
    Fetch("roses.md", max_lines=1),
    Fetch("garden/we ird & co/ü [1].md"),
    Fetch("work/*.md", several=True),
    Fetch("pricing.md, garden/deep/roses.md", several=True),
    Fetch("work/*.md", several=True, max_lines=1),
    Fetch("kiwi.md"),
)

CONNECTIONS = (
    Connect("beds"),
    Connect("[[Roses]]"),
    Connect("[[red flowers|roses]]:2-3"),
    Connect("limiter"),
    Connect("limiter", related=True),
    Connect("tomatoes.md"),
    Connect("no such note"),
    Connect("beds", related=True),
    Connect("tomatoes.md", related=True, limit=2),
    Connect("roses", related=True, collections=("work", "garden")),
    Connect("roses", related=True, collections=("nowhere",)),
    Connect("hidden/kiwi.md", related=True),
)

Load = Callable[[EngineSettings, Collection[Role]], Engines]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends the warm process by signal")


def loaded_once(load: Load) -> Load:
    """Wrap a loader so that it loads the models of the same roles only once."""
    loaded: dict[tuple[str, frozenset[Role]], Engines] = {}

    def load_once(settings: EngineSettings, roles: Collection[Role]) -> Engines:
        key = (repr(settings), frozenset(roles))
        if key not in loaded:
            loaded[key] = load(settings, roles)
        return loaded[key]

    return load_once


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Index of three collections with the built-in model; one collection is searched only when named."""
    home = tmp_path_factory.mktemp("parity")
    patch = pytest.MonkeyPatch()
    for name in list(os.environ):
        if name.startswith(("QMD_", "XDG_")) or name == "INDEX_PATH":
            patch.delenv(name)
    for name, value in {"HOME": home, "PWD": home, "XDG_CONFIG_HOME": home / "config"}.items():
        patch.setenv(name, str(value))
    patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    patch.setenv("QMD_DAEMON", "off")
    patch.chdir(home)
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    assert run("index", "garden", "work", "hidden")[0] == 0
    assert run("collection", "exclude", "hidden")[0] == 0
    patch.setattr(loader, "load_engines", loaded_once(loader.load_engines))
    yield home
    for record in home.rglob("warm-*.json"):
        os.kill(json.loads(record.read_text(encoding="utf-8"))["pid"], signal.SIGTERM)
    patch.undo()


@pytest.fixture(scope="module")
def served(world: Path) -> Iterator[Index]:
    with _serve(world) as index:
        yield index


def _serve(world: Path) -> Index:
    session = Invocation("mcp", dict(os.environ), world)
    return session.serve(session.locate(None))


@pytest.fixture(scope="module")
def front_ends(world: Path, served: Index) -> Iterator[dict[str, FrontEnd]]:
    with qmd.open_index() as index:
        made = (python_front_end(index), mcp_front_end(served), http_front_end(served), warm_front_end(world))
        yield dict(zip(("python", "mcp", "http", "warm process"), made, strict=True))


@pytest.mark.parametrize("request_", [*FOUND, *FOUND_NOTHING, *REFUSED, *FETCHES, *CONNECTIONS], ids=str)
def test_every_front_end_answers_as_the_command_line_does(request_: Request, front_ends: dict[str, FrontEnd]) -> None:
    expected = ask_command_line(request_)
    # An empty answer would make the comparison pointless.
    assert request_ not in FOUND or expected.rows
    assert request_ not in FOUND_NOTHING or (expected.warnings and not expected.rows)
    assert request_ not in REFUSED or expected.error is not None
    answers = {name: ask(request_) for name, ask in front_ends.items()}
    different: dict[str, Any] = {
        name: answer for name, answer in answers.items() if answer is not None and not answer.agrees_with(expected)
    }
    assert different == {}, expected


@pytest.mark.parametrize(
    ("text", "roles"), [("lex: ownership", {"embed", "rerank"}), ("ownership", {"embed", "rerank", "expand"})]
)
def test_front_ends_load_equal_models(text: str, roles: set[str], world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    real = loader.load_engines

    def load_engines(settings: Any, wanted: Any) -> Any:
        asked.append(set(wanted))
        return real(settings, wanted)

    monkeypatch.setattr(loader, "load_engines", load_engines)
    ask_command_line(Ask(text))
    with qmd.open_index() as index:
        python_front_end(index)(Ask(text))
    with _serve(world) as index:
        mcp_front_end(index)(Ask(text))
    assert asked == [roles, roles, roles]


@pytest.mark.parametrize("name", ["command line", "python", "mcp", "http"])
def test_every_front_end_finds_a_note_of_a_moment_ago(name: str, world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "_LOOK_S", 60.0)
    note = world / "garden/wombat.md"
    note.write_text("# Wombat\n\nA wombat came by.\n", encoding="utf-8")
    try:
        with qmd.open_index() as index, _serve(world) as served:
            asks = {"python": python_front_end(index), "mcp": mcp_front_end(served), "http": http_front_end(served)}
            answer = asks.get(name, ask_command_line)(Ask("wombat"))
    finally:
        note.unlink()
        with qmd.open_index() as index:
            index.update()
    assert answer is not None
    assert answer.rows[0][0] == "qmd://garden/wombat.md"
