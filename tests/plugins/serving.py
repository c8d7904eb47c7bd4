"""A small real index, opened with stand-in models."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from qmd.app.engines import EnginePool
from qmd.app.index import Index
from qmd.app.opening import open_index
from qmd.indexing.update import update_collection
from qmd.inference.base import Engines
from qmd.inference.records import Role
from qmd.inference.settings import EngineSettings
from qmd.plugins.mcp.guard import AccessPolicy
from qmd.plugins.mcp.page_key import IS_OWNER
from qmd.records import Collection
from qmd.store.opening import open_writer
from tests.fakes import HashingEmbedder, OverlapReranker
from tests.program import write_notes

ALPHA = "# Alpha Doc\n\nThe rate limiter uses a sliding window.\nAuth token flow\n\n## Section Two\n\nMore text here.\n"
FILES = {
    "a.md": ALPHA,
    "sub/b.md": "# Beta\n\nThe cache is flushed every night.\n",
    "we ird/c & d.md": "# Odd name\n\nSpaces and ampersands in a path about teapots.\n",
    "日本/検索.md": "# 検索\n\nデータベースの検索について。\n",
    "long.md": "# Long\n\n" + "word salad line\n" * 300 + "the marker zebra stands here\n" + "tail\n" * 20,
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of markdown files; tests leave it as it is."""
    return write_notes(tmp_path_factory.mktemp("served") / "notes", FILES)


@pytest.fixture(scope="session")
def database(notes: Path) -> Path:
    """An index of that folder: collection `docs` with notes on it, and an excluded, empty collection `old`."""
    path = notes.parent / "cache" / "qmd" / "index.sqlite"
    docs = Collection("docs", notes, context={"/": "Root ctx", "sub": "Sub ctx"})
    old = Collection("old", notes.parent / "old", include_by_default=False)
    with open_writer(path) as writer:
        writer.mirror_config([docs, old], "Global", "digest")
        update_collection(writer, docs)
    return path


@dataclass
class Loader:
    """Stands in for loading models, and counts how often that happens."""

    loads: list[frozenset[Role]] = field(default_factory=list)
    before_scoring: Callable[[], object] = lambda: None

    def __call__(self, settings: EngineSettings, roles: frozenset[Role]) -> Engines:
        self.loads.append(roles)
        return Engines(
            embedder=HashingEmbedder() if "embed" in roles else None,
            reranker=HookedReranker(self) if "rerank" in roles else None,
            expander=None,
        )


class HookedReranker(OverlapReranker):
    """An overlap reranker that first runs the loader's hook."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader

    def score(self, *args: Any, **options: Any) -> Sequence[float | None]:
        self._loader.before_scoring()
        return super().score(*args, **options)


@pytest.fixture
def loader() -> Loader:
    return Loader()


def open_with(database: Path, loader: Loader) -> Index:
    """The index at that place, with the models of `loader`."""
    opened = open_index(database, environ={})
    opened._engines = EnginePool(loader, ttl_s=300)
    return opened


def make_index(database: Path, folder: Path, loader: Loader) -> Index:
    """The index of a folder, as a collection of its name, with the models of `loader`."""
    collection = Collection(folder.name, folder, pattern="**/*.{md,txt}")
    with open_writer(database) as writer:
        writer.mirror_config([collection], None, "digest")
        update_collection(writer, collection)
    return open_with(database, loader)


@pytest.fixture
def index(database: Path, loader: Loader) -> Iterator[Index]:
    with open_with(database, loader) as opened:
        yield opened


def known_as(app: Any, is_owner: bool | None = True) -> Any:
    """An application for clients within this process, whose requests come over no connection to look up."""

    async def known(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {IS_OWNER: is_owner}}, receive, send)

    return known


@pytest.fixture
def policy() -> AccessPolicy:
    return AccessPolicy("127.0.0.1")
