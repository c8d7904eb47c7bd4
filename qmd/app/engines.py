"""Models shared by the requests to one index: loaded on first use, by one request for all, dropped when idle."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec.structs import replace

from qmd.app.queues import FifoSemaphore
from qmd.errors import ModelError
from qmd.inference.base import Engines

if TYPE_CHECKING:
    from qmd.inference.records import Role
    from qmd.inference.settings import EngineSettings

SettingsT = TypeVar("SettingsT")

_RETRY_S = 30.0
"""Seconds after which a model that could not be opened is tried again: its server or file may be back."""

_LOW_MEMORY_SHARE = 0.05
"""Share of available main memory below which idle models are unloaded at once."""

_POLL_S = 0.2


class EnginePool(Generic[SettingsT]):
    """Pool of the models of one process, loaded for the roles of the first request.

    Searches share them. A search that needs other models waits for the others to end, and later ones wait for it: two
    sets at once could need twice the memory.

    Args:
        load: Opens the models of some roles.
        ttl_s: Seconds after which idle models are unloaded; None keeps them.
        clock: Monotonic seconds.
        stamp: Changes when the same settings select other models, because files were added or removed.
        is_memory_low: Whether idle models must be unloaded at once; None asks the system.
    """

    def __init__(
        self,
        load: Callable[[SettingsT, frozenset[Role]], Engines],
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        stamp: Callable[[SettingsT], object] = lambda _: None,
        is_memory_low: Callable[[], bool] | None = None,
    ) -> None:
        self._load = load
        self._stamp = stamp
        self._is_memory_low = is_memory_low or machine_lacks_memory
        self._ttl_s = ttl_s
        self._clock = clock
        self._door = FifoSemaphore(1)
        self._changed = threading.Condition()
        self._searches = self._leases = 0
        self._loaded: tuple[tuple[SettingsT, object], frozenset[Role], Engines] | None = None
        self._loaded_at = self._used_at = clock()

    @property
    def is_loaded(self) -> bool:
        """Whether any model is in memory."""
        return self._loaded is not None

    @contextmanager
    def engines(
        self, settings: SettingsT, roles: frozenset[Role], check: Callable[[], None] = lambda: None
    ) -> Iterator[Engines]:
        """Yield the engines of these roles and no others, exactly as a new process would load them.

        While other models are in use, `check` is called regularly; it raises to end the wait.
        """
        if not roles:
            yield Engines()
            return
        with self._door.turn(check), self._changed:
            while (known := self._known(settings, roles)) is None and self._searches:
                self._changed.wait(_POLL_S)
                check()
            engines = known or self._reload(settings, roles)
            self._searches += 1
        try:
            yield _only(engines, roles)
        finally:
            with self._changed:
                self._searches -= 1
                self._used_at = self._clock()
                self._changed.notify_all()

    @contextmanager
    def lease(self, settings: SettingsT, roles: frozenset[Role]) -> Iterator[Engines]:
        """Yield engines as `engines` does, for long work: searches continue, and models stay loaded."""
        if not roles:
            yield Engines()
            return
        with self._changed:
            served = self._served(settings, roles)
            self._leases += served is not None
        if served is None:
            with self.engines(settings, roles) as served, self._changed:
                self._leases += 1
        try:
            yield served
        finally:
            with self._changed:
                self._leases -= 1
                self._used_at = self._clock()

    def unload_if_idle(self) -> bool:
        """Unload models that are idle for the time to live, or when memory is low; return whether any were."""
        if self._loaded is None or not self._changed.acquire(blocking=False):
            return False
        try:
            idle_s = self._clock() - self._used_at
            expired = self._ttl_s is not None and idle_s >= self._ttl_s
            is_due = expired or (idle_s >= 1 and self._is_memory_low())
            if self._loaded is None or self._leases or self._searches or not is_due:
                return False
            self._loaded = None
        finally:
            self._changed.release()
        release_memory()
        return True

    def unload(self, timeout_s: float | None = None) -> None:
        """Unload the models once no search uses them, or not at all if that takes longer than `timeout_s`."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._searches, timeout_s):
                self._loaded = None

    def _served(self, settings: SettingsT, roles: frozenset[Role]) -> Engines | None:
        """Return the loaded models of these roles, if all are there.

        Notes may concern other roles: separating them would reload the models for every slice of the work, and
        again for the next search.
        """
        if self._loaded is None or self._loaded[0] != (settings, self._stamp(settings)):
            return None
        engines = replace(_only(self._loaded[2], roles), notes=(), failures=())
        served = {"embed": engines.embedder, "rerank": engines.reranker, "expand": engines.expander}
        return engines if all(served[role] is not None for role in roles) else None

    def _known(self, settings: SettingsT, roles: frozenset[Role]) -> Engines | None:
        """Return the loaded models if a search for these roles would load the same."""
        if self._loaded is None or (self._loaded[2].failures and self._clock() - self._loaded_at >= _RETRY_S):
            return None
        key, known_roles, engines = self._loaded
        # Notes report roles that could not be loaded; those of other roles do not concern this search.
        serves = roles == known_roles or (roles < known_roles and not engines.notes)
        return engines if serves and key == (settings, self._stamp(settings)) else None

    def _reload(self, settings: SettingsT, roles: frozenset[Role]) -> Engines:
        key = (settings, self._stamp(settings))
        if self._loaded is not None and self._loaded[0] == key and not self._loaded[2].notes:
            roles |= self._loaded[1]
        # Before loading, not after: two sets at once could need twice the memory.
        self._loaded = None
        started = self._clock()
        engines = self._load(settings, roles)
        self._loaded = (key, roles, engines)
        self._loaded_at = self._clock()
        return replace(engines, load_ms=1000 * (self._loaded_at - started))


def _only(engines: Engines, roles: frozenset[Role]) -> Engines:
    return replace(
        engines,
        embedder=engines.embedder if "embed" in roles else None,
        embedders=engines.embedders if "embed" in roles else {},
        reranker=engines.reranker if "rerank" in roles else None,
        expander=engines.expander if "expand" in roles else None,
    )


def machine_lacks_memory() -> bool:
    """Return whether memory of the machine or control group is nearly used up; False where it is unknown."""
    return _machine_is_full() or _group_is_full()


def _machine_is_full() -> bool:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemAvailable"] < _LOW_MEMORY_SHARE * sizes["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return False


def _group_is_full() -> bool:
    """Return whether the control group is nearly full, for containers; cached files are not counted."""
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        pairs = (line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
        cached = sum(int(value) for name, value in pairs if name in ("active_file", "inactive_file"))
        return used - cached > (1 - _LOW_MEMORY_SHARE) * limit
    except (OSError, ValueError):
        return False


def release_memory() -> None:
    """Collect garbage and hand freed pages back to the system."""
    gc.collect()
    if sys.platform == "linux":
        import ctypes

        # glibc keeps freed pages of many small blocks; musl has no such function and does not need it.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def open_engines(settings: EngineSettings, roles: frozenset[Role]) -> Engines:
    """Load the models of `roles` by the settings.

    Raises:
        ModelError: The inference packages cannot be imported.
    """
    try:
        from qmd.inference.loader import load_engines

        return load_engines(settings, roles)
    except ImportError as exc:
        raise ModelError(f"the inference packages cannot be imported: {exc}", "'qmd search' works without") from exc


def is_words_only() -> bool:
    """Return whether this installation has lexical search only, because its platform lacks a package."""
    return any(find_spec(name) is None for name in ("onnxruntime", "tokenizers", "sqlite_vec"))


def models_stamp(settings: EngineSettings) -> tuple[tuple[str, int], ...]:
    """Return names and times of the model folders: a pull or a removal changes the meaning of `auto`."""
    try:
        return tuple(sorted((entry.name, entry.stat().st_mtime_ns) for entry in settings.models_dir.iterdir()))
    except OSError:
        return ()
