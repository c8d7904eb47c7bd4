"""Open resources of an index: readers of its file, models, and the timeout of a request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from qmd.app.deadlines import Deadline, parse_model_ttl
from qmd.app.freshness import Refresher
from qmd.app.notices import Notices
from qmd.app.queues import AT_ONCE, FifoSemaphore, IdleGate
from qmd.errors import StoreError
from qmd.retrieval.trace import CancelledSearch, Listener
from qmd.store.records import model_of
from qmd.switches import is_off

if TYPE_CHECKING:
    from qmd.app.configuration import Configuration
    from qmd.app.engines import EnginePool
    from qmd.app.records import EmbedRequest
    from qmd.config.paths import Locations
    from qmd.inference.base import Engines
    from qmd.inference.records import Role
    from qmd.inference.settings import EngineSettings
    from qmd.store.base import IndexReader, IndexWriter

_CLOSE_TIMEOUT_S = 2.0

_IDLE_READERS = 2
"""Readers that stay open. Each may cache vectors, so no more than usually run at once."""

_Identity = tuple[object, ...]


class ReaderPool:
    """Pool of readers of one index. A reader serves one request at a time.

    Args:
        open_reader: Opens one more.
        watched: The index file and the configuration: readers are reopened when one of them is replaced or changed.
        keeps_idle: Whether a reader that has served a request may serve another one.
    """

    def __init__(
        self, open_reader: Callable[[], IndexReader], watched: tuple[Path, ...] = (), *, keeps_idle: bool = True
    ) -> None:
        self._open = open_reader
        self._watched = watched
        self._most_idle = _IDLE_READERS if keeps_idle else 0
        self._idle: list[tuple[_Identity, IndexReader]] = []
        self._lock = threading.Lock()

    @contextmanager
    def reader(self) -> Iterator[IndexReader]:
        """Yield a reader; after an error it is closed instead of being reused.

        Raises:
            NotFoundError: There is no index.
            StoreError: It cannot be opened.
        """
        # It differs after the index file was replaced or the configuration was edited.
        identity = tuple(_file_identity(path, by_content=number > 0) for number, path in enumerate(self._watched))
        reader = self._take(identity) or self._open()
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        self._give_back(identity, reader)

    def close(self) -> None:
        """Close the idle readers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, reader in idle:
            reader.close()

    def _take(self, identity: _Identity) -> IndexReader | None:
        with self._lock:
            stale = [reader for known, reader in self._idle if known != identity]
            self._idle = [entry for entry in self._idle if entry[0] == identity]
            taken = self._idle.pop()[1] if self._idle else None
        for reader in stale:
            reader.close()
        return taken

    def _give_back(self, identity: _Identity, reader: IndexReader) -> None:
        with self._lock:
            keep = len(self._idle) < self._most_idle
            if keep:
                self._idle.append((identity, reader))
        if not keep:
            reader.close()


def _file_identity(path: Path, *, by_content: bool) -> tuple[int, ...] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino, *((stat.st_size, stat.st_mtime_ns) if by_content else ()))


class OpenedIndex:
    """Index and the models that search it, opened at their first use and shared by all requests.

    Args:
        locations: Its files.
        configuration: Its collections, notes and models.
        environ: Variables that choose models and how long idle ones are kept.
        notices: Receives messages for the user.
        allow_gpu: False keeps models on the CPU.
        keeps_models: Whether idle models stay loaded.
        timeout_s: Timeout of a request; None for no limit. Computing vectors has no limit.
    """

    def __init__(
        self,
        locations: Locations,
        configuration: Configuration,
        environ: Mapping[str, str],
        *,
        notices: Notices = Notices(),
        allow_gpu: bool = True,
        keeps_models: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._locations = locations
        self._configuration = configuration
        # Engines read only these; any other change of the environment would reload the models.
        self._environ = {name: value for name, value in environ.items() if name.startswith("QMD_")}
        self._notices = notices
        self._allow_gpu = allow_gpu
        # A reader of an index at an address sees the version that was there when it was opened.
        self._readers = ReaderPool(
            configuration.open_reader, (locations.database, locations.config_file), keeps_idle=locations.address is None
        )
        self._refresher = Refresher(configuration, locations, self._environ)
        self._idle_gate = IdleGate()
        # A lexical search takes milliseconds and does not wait for models.
        self._words_line, self._models_line = FifoSemaphore(AT_ONCE), FifoSemaphore(AT_ONCE)
        self._by_collection: frozenset[str] = frozenset()
        self._known_lines: set[str] = set()
        self._model_ttl_s = None if keeps_models else parse_model_ttl(environ)

    @cached_property
    def _engines(self) -> EnginePool[EngineSettings]:
        from qmd.app.engines import EnginePool, models_stamp, open_engines

        return EnginePool(open_engines, self._model_ttl_s, stamp=models_stamp)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release models and open files, after a moment for a search that still runs.

        The index stays usable, and reopens them at the next use.
        """
        if "_engines" in self.__dict__:
            self._engines.unload(_CLOSE_TIMEOUT_S)
        self._readers.close()

    def release_idle(self) -> None:
        """Release models and readers that have been idle for their time to live."""
        if self._engines.unload_if_idle():
            self._readers.close()

    @property
    def path(self) -> Path:
        """The index file; for an index at an address, the path next to which this machine keeps its locks."""
        return self._locations.database

    @property
    def embeds_in_background(self) -> bool:
        """Whether an idle server may compute missing vectors."""
        return not is_off(self._environ.get("QMD_AUTO_EMBED")) and self._configuration.auto_embed()

    def exists(self) -> bool:
        """Return whether an index exists."""
        from qmd.store.opening import index_exists

        return index_exists(self._locations.database, self._locations.address)

    def engine_settings(self) -> EngineSettings:
        """Return the models of the configuration as far as it is trusted, else of the environment, else automatic."""
        from qmd.inference.settings import EngineSettings

        written = self._configuration.settings()
        models = written.models
        return EngineSettings(
            models_dir=self._locations.models,
            embed=models.get("embed", "auto"),
            by_collection=self._by_collection,
            rerank=models.get("rerank", "auto"),
            expand=models.get("generate", "auto"),
            options=models,
            sampling=written.sampling or {},
            allow_gpu=self._allow_gpu,
            env=self._environ,
        )

    def choose_models(self, writer: IndexWriter, request: EmbedRequest) -> None:
        """Choose the built-in models of the collections of a run, unless one is configured, and need them."""
        from qmd.indexing.model_choices import choose_models
        from qmd.inference.loader import chooses_by_language

        if chooses_by_language(self.engine_settings()):
            names = request.collections or writer.collections_with_documents()
            self._warn_once(choose_models(writer, names, force=request.force))
        self.need_models(writer, request.collections)

    def _warn_once(self, lines: Iterable[str]) -> None:
        """Report lines that were not reported before: most concern every slice of a run."""
        for line in lines:
            if line not in self._known_lines:
                self._known_lines.add(line)
                self._notices.warn(line)

    def need_models(self, reader: IndexReader, collections: Sequence[str] | None = None) -> None:
        """Have `engine_settings` open the built-in models of some collections, None for all, as well from now on."""
        facts = {} if collections == () else reader.facts()
        if self._by_collection or any(key.startswith("model:") for key in facts):
            names = [one.name for one in reader.collections()] if collections is None else collections
            self._by_collection |= {model_of(facts, name)[0] for name in names}

    @contextmanager
    def reader(self) -> Iterator[IndexReader]:
        """Yield a reader of the index, for measurements and checks.

        Raises:
            NotFoundError: There is no index.
        """
        with self._request() as (reader, _):
            self.need_models(reader)
            yield reader

    @contextmanager
    def engines(self, roles: frozenset[Role]) -> Iterator[Engines]:
        """Yield the models, for measurements and checks."""
        with self._engines.lease(self.engine_settings(), roles) as engines:
            yield engines

    @contextmanager
    def _request(
        self, listener: Listener = Listener(), line: FifoSemaphore | None = None
    ) -> Iterator[tuple[IndexReader, Deadline]]:
        """Yield a reader that stops when the time is over or the client has disconnected, and its deadline.

        With `line`, requests are served in the order of their arrival.
        """
        deadline = Deadline(listener, self.timeout_s)
        turn = line.turn(deadline.check) if line else nullcontext()
        with self._idle_gate.request(), turn, self._readers.reader() as reader:
            reader.stop_when(lambda: deadline.is_cancelled)
            try:
                yield reader, deadline
            except (CancelledSearch, StoreError):
                # Both end the work; the deadline knows the reason.
                deadline.check()
                raise
            finally:
                reader.stop_when(None)
