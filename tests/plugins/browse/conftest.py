"""Small real index for the screen, with stand-in models that a test can pause."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt
import pytest
from textual.pilot import Pilot
from textual.widgets import Label, Static

from qmd.app.engines import EnginePool
from qmd.app.index import Index
from qmd.app.opening import open_index
from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.inference.base import Engines
from qmd.inference.records import Role
from qmd.inference.settings import EngineSettings
from qmd.plugins.browse import pending_search as asking
from qmd.plugins.browse.app import BrowseApp
from qmd.plugins.browse.rows import Note
from qmd.plugins.browse.widgets import Question
from qmd.records import Collection
from qmd.retrieval.request import SearchRequest
from qmd.store.opening import open_writer
from tests.fakes import HashingEmbedder, OverlapReranker

FILES = {
    "notes/limits.md": "# Rate limits\n\n## Design\n\nThe limiter has a sliding window. See [[Cache]].\n",
    "notes/cache.md": "---\ntags: [work/infra]\n---\n# Cache\n\nThe cache is flushed every night by the limiter.\n",
    "notes/teapots.md": "# Teapots\n\nA teapot needs a window sill.\n",
    "notes/long.md": "# Long\n\n"
    + "word salad line\n\n" * 200
    + "a " * 100
    + "\n\n"
    + "## Zoo\n\nThe **zebra** stands here.\n"
    + "\ntail\n" * 60,
    "notes/检索.md": "# 検索\n\nデータベースの検索について。\n",
    "notes/hostile.md": '---\ntags: ["evil\\e[2J"]\n---\n# Bad \x1b]0;owned\x07 title\n\n'
    "hostile \x1b[2J\x9b3m \u202eback &#x202e; [x](x:y) \x07\n",
    "diary/sunday.md": "# Sunday\n\nTea, and a window seat.\n",
}
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x202E) if code != 0x0A]


async def settled(*_: float) -> None:
    """Wait until the app waits only for a thread, a timer or a key.

    Textual's own function measures the processor time of the whole process, in steps of 20 ms, for up to a second.
    """
    loop = asyncio.get_running_loop()
    n_quiet = 0
    while n_quiet < 3:
        await asyncio.sleep(0)
        n_quiet = 0 if loop._ready else n_quiet + 1  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses: do not wait for processor time, without animations, and with a short pause before models."""
    monkeypatch.setattr(asking, "_THINKING_S", 0.02)
    monkeypatch.setattr("textual.app.wait_for_idle", settled)
    monkeypatch.setattr("textual.pilot.wait_for_idle", settled)
    monkeypatch.setattr("textual.constants.TEXTUAL_ANIMATIONS", "none")


class GatedEmbedder(HashingEmbedder):
    """Models that answer only while the gate is open."""

    gate = Event()

    def embed_queries(self, texts: object) -> npt.NDArray[np.float32]:
        assert self.gate.wait(10)
        return super().embed_queries(texts)  # type: ignore[arg-type]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browsed")
    for path, text in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    collections = [Collection("notes", root / "notes"), Collection("diary", root / "diary")]
    with open_writer(root / "index.sqlite") as writer:
        writer.mirror_config(collections, None, "digest")
        for one in collections:
            update_collection(writer, one)
            embed_pending(writer, HashingEmbedder(), collections=[one.name])
    return root / "index.sqlite"


@pytest.fixture
def gate() -> Iterator[Event]:
    """Gate that pauses the models while a test closes it."""
    GatedEmbedder.gate.set()
    yield GatedEmbedder.gate
    GatedEmbedder.gate.set()


@pytest.fixture
def index(database: Path, gate: Event) -> Iterator[Index]:
    def load(settings: EngineSettings, roles: frozenset[Role]) -> Engines:
        embedder = GatedEmbedder() if "embed" in roles else None
        return Engines(embedder, OverlapReranker() if "rerank" in roles else None, None)

    with open_index(database, environ={}) as opened:
        opened._engines = EnginePool(load, ttl_s=300)
        yield opened


class Seat:
    """User in front of the screen."""

    def __init__(self, app: BrowseApp, pilot: Pilot[Note], opened: list[Note]) -> None:
        self.app, self.pilot, self.opened = app, pilot, opened

    @property
    def titles(self) -> list[str]:
        """Return the notes in the list, or the lines of another list."""
        return [row.document.title if isinstance(row, Note) else row.key for row in self.app._rows]

    @property
    def status(self) -> str:
        return str(self.app.query_one("#status", Label).content)

    @property
    def message(self) -> str:
        return str(self.app.query_one("#message", Static).content)

    @property
    def question(self) -> Question:
        return self.app.query_one(Question)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        """Type all keys at once; single keys would each be answered and drawn."""
        self.question.insert_text_at_cursor(text)
        await self.pilot.pause()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for the result of a thread."""
        end = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < end, (self.titles, self.status, self.message)
            await asyncio.sleep(0.01)
        await self.pilot.pause()

    async def answered(self, stage: str) -> None:
        """Wait for the last stage, and for the note that it chooses."""
        await self.until(lambda: self.status.startswith(stage) and not self.status.endswith("…"))
        await self.until(lambda: all(worker.is_finished for worker in self.app.workers))


@asynccontextmanager
async def seated(
    index: Index,
    text: str = "",
    size: tuple[int, int] = (80, 24),
    kind: type[BrowseApp] = BrowseApp,
    saved: Mapping[str, str] = {},
) -> AsyncIterator[Seat]:
    """Open the screen with its first list, for a terminal of that size."""
    opened: list[Note] = []
    request = SearchRequest(text, limit=30)
    app = kind(index, request, open_note=opened.append, link=lambda note: f"file:///{note.document.path}", saved=saved)
    async with app.run_test(size=size, notifications=True) as pilot:
        yield Seat(app, pilot, opened)
