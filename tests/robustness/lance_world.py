"""Notes with an index in LanceDB tables, and processes that begin at once; the library takes seconds to import."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Concatenate, ParamSpec

from qmd.config.settings import load_config
from qmd.store.opening import open_reader
from tests.robustness.comparison import Tables, tables_of
from tests.robustness.crash_states import Texts
from tests.robustness.scenarios import World

_IMPORTED = ["tests.robustness.lance_world", "qmd.cli.app", "qmd.plugins.lance.writer", "qmd.plugins.lance.dense"]
"""By the process of which the others are forks; it does nothing else."""

P = ParamSpec("P")

warnings.filterwarnings("ignore", "lancedb fork support is experimental")


@dataclass(frozen=True)
class LanceWorld(World):
    """Notes, and an index of them in LanceDB tables; each try has a folder of its own, for the library's caches."""

    name: str = "state"

    @property
    def folder(self) -> Path:
        return self.home / self.name

    @property
    def tables(self) -> Path:
        """The folder of the tables."""
        return self.folder / "tables"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "QMD_CONFIG_DIR": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "INDEX_PATH": f"lance:{self.tables}",
        }


def copy_of(world: LanceWorld, name: str) -> LanceWorld:
    """The same state in another folder."""
    copied = replace(world, name=name)
    shutil.copytree(world.folder, copied.folder)
    return copied


def tables_in(world: LanceWorld) -> Tables:
    """What the index holds."""
    return tables_of(world.locations, [one.name for one in load_config(world.locations).collections])


def texts_of(world: LanceWorld) -> Texts:
    """The hash of every document whose text can be read back."""
    with open_reader(world.locations.database, world.locations.address) as reader:
        documents = list(reader.iter_documents())
        texts = reader.texts([document.hash for document in documents])
    return {one.path: one.hash for one in documents if len(texts[one.hash]) == one.size}


def child(
    work: Callable[Concatenate[Connection, P], None], *args: P.args, **kwargs: P.kwargs
) -> tuple[BaseProcess, Connection]:
    """A process that does some work, and where it may tell of it."""
    forks = get_context("forkserver")
    forks.set_forkserver_preload(_IMPORTED)
    told, tell = forks.Pipe(duplex=False)
    process = forks.Process(target=work, args=(tell, *args), kwargs=kwargs, daemon=True)
    process.start()
    tell.close()
    return process, told
