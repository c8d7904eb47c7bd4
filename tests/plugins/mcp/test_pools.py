"""Pools of readers and models: opened late, shared, released when idle."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from qmd.app.deadlines import parse_model_ttl
from qmd.app.engines import EnginePool
from qmd.app.queues import FifoSemaphore
from qmd.app.resources import ReaderPool
from qmd.errors import UsageError
from qmd.inference.base import Engines
from qmd.inference.records import Role
from qmd.retrieval.trace import CancelledSearch
from tests.fakes import HashingEmbedder, OverlapReranker
from tests.note_index import NoteIndex

Loads = list[tuple[str, frozenset[Role]]]
EMBED: frozenset[Role] = frozenset({"embed"})
RERANK: frozenset[Role] = frozenset({"rerank"})
BOTH: frozenset[Role] = frozenset({"embed", "rerank"})


class Models:
    """Loader that counts its calls."""

    def __init__(self, notes: tuple[str, ...] = (), failures: tuple[str, ...] = ()) -> None:
        self.loads: Loads = []
        self.notes = notes
        self.failures = failures

    def __call__(self, settings: str, roles: frozenset[Role]) -> Engines:
        self.loads.append((settings, roles))
        reranker = OverlapReranker() if "rerank" in roles else None
        return Engines(HashingEmbedder() if "embed" in roles else None, reranker, None, self.notes, self.failures)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_models_are_loaded_once_and_only_those_asked_for_are_seen() -> None:
    models = Models()
    pool = EnginePool(models)
    with pool.engines("s", BOTH) as both:
        assert both.embedder and both.reranker
    with pool.engines("s", EMBED) as one:
        assert one.embedder and one.reranker is None
    assert models.loads == [("s", BOTH)]


@pytest.mark.parametrize(
    ("notes", "asked", "loads"),
    [
        # Further roles are added to those in use; other settings mean other models.
        ((), [("s", EMBED), ("s", RERANK), ("s", EMBED)], [("s", EMBED), ("s", BOTH)]),
        ((), [("a", EMBED), ("b", EMBED)], [("a", EMBED), ("b", EMBED)]),
        # A notice about another role is not passed on.
        (("no reranker",), [("s", BOTH), ("s", EMBED)], [("s", BOTH), ("s", EMBED)]),
    ],
)
def test_a_request_for_others_loads_again(notes: tuple[str, ...], asked: Loads, loads: Loads) -> None:
    models = Models(notes)
    pool = EnginePool(models)
    for settings, roles in asked:
        with pool.engines(settings, roles):
            pass
    assert models.loads == loads


def test_the_time_of_loading_is_reported_to_the_request_that_waited_for_it() -> None:
    clock = Clock()

    def slow(settings: str, roles: frozenset[Role]) -> Engines:
        clock.now += 1.5
        return Models()(settings, roles)

    pool = EnginePool(slow, clock=clock)
    times = []
    for roles in (EMBED, EMBED, BOTH):
        with pool.engines("s", roles) as engines:
            times.append(engines.load_ms)
    assert times == [1500.0, 0.0, 1500.0]


def test_new_model_files_load_other_models() -> None:
    models, files = Models(), ["a"]
    pool = EnginePool(models, stamp=lambda _: tuple(files))
    for _ in range(2):
        with pool.engines("s", EMBED):
            pass
    files.append("b")
    with pool.engines("s", EMBED):
        pass
    assert len(models.loads) == 2


def test_no_role_loads_nothing() -> None:
    models = Models()
    with EnginePool(models).engines("s", frozenset()) as engines:
        assert engines == Engines(None, None, None)
    assert models.loads == []


def test_idle_models_are_dropped_after_their_time_and_come_back() -> None:
    models, clock = Models(), Clock()
    pool = EnginePool(models, ttl_s=60, clock=clock)
    with pool.engines("s", EMBED):
        clock.now = 100.0
        assert pool.unload_if_idle() is False
    clock.now = 159.0
    assert (pool.unload_if_idle(), pool.is_loaded) == (False, True)
    clock.now = 160.0
    assert (pool.unload_if_idle(), pool.is_loaded) == (True, False)
    with pool.engines("s", EMBED):
        pass
    assert len(models.loads) == 2


def test_a_model_that_could_not_be_opened_is_tried_again_after_half_a_minute() -> None:
    models, clock = Models(failures=("the model server is away",)), Clock()
    pool = EnginePool(models, clock=clock)
    for clock.now in (0.0, 29.0, 31.0):
        with pool.engines("s", EMBED) as engines:
            assert engines.failures == models.failures
    assert len(models.loads) == 2
    models.failures = ()
    for clock.now in (62.0, 200.0):
        with pool.engines("s", EMBED) as engines:
            assert engines.failures == ()
    assert len(models.loads) == 3


def test_a_failed_load_leaves_the_pool_usable() -> None:
    def fail(settings: str, roles: frozenset[Role]) -> Engines:
        raise UsageError("no")

    pool = EnginePool(fail)
    for _ in range(2):
        with pytest.raises(UsageError), pool.engines("s", EMBED):
            pass


def test_readers_are_used_again_until_their_file_is_replaced(tmp_path: Path) -> None:
    database = tmp_path / "index.sqlite"
    database.write_bytes(b"1")
    opened: list[NoteIndex] = []

    def open_reader() -> NoteIndex:
        opened.append(NoteIndex())
        return opened[-1]

    pool = ReaderPool(open_reader, (database,))
    with pool.reader() as first, pool.reader() as second:
        assert first is not second
    with pool.reader():
        pass
    assert len(opened) == 2
    (tmp_path / "new").write_bytes(b"2")
    (tmp_path / "new").replace(database)
    with pool.reader() as third:
        assert third is not first and third is not second


def test_readers_are_reopened_after_the_configuration_changed(tmp_path: Path) -> None:
    config = tmp_path / "index.yml"
    opened: list[int] = []

    def open_reader() -> NoteIndex:
        opened.append(1)
        return NoteIndex()

    pool = ReaderPool(open_reader, (tmp_path / "index.sqlite", config))
    for text in ("a", "a much longer text"):
        config.write_text(text, encoding="utf-8")
        with pool.reader():
            pass
    assert len(opened) == 2


@pytest.mark.parametrize(
    ("text", "expected"), [("", 300), ("90", 90), ("1.5s", 1.5), ("5m", 300), ("2h", 7200), ("off", None)]
)
def test_times_to_live(text: str, expected: float | None) -> None:
    assert parse_model_ttl({"QMD_MODEL_TTL": text}) == expected


@pytest.mark.parametrize("text", ["soon", "5x", "-5m"])
def test_other_times_to_live_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_model_ttl({"QMD_MODEL_TTL": text})


def test_idle_models_are_dropped_at_once_when_memory_runs_out() -> None:
    clock, lacks = Clock(), [False]
    pool = EnginePool(Models(), ttl_s=None, clock=clock, is_memory_low=lambda: lacks[0])
    with pool.engines("s", EMBED):
        pass
    clock.now = 5.0
    assert pool.unload_if_idle() is False
    lacks[0] = True
    assert pool.unload_if_idle() is True and not pool.is_loaded


def test_leased_models_stay_until_the_work_is_done() -> None:
    clock = Clock()
    pool = EnginePool(Models(), ttl_s=1, clock=clock, is_memory_low=lambda: True)
    with pool.lease("s", EMBED), pool.engines("s", EMBED):
        pass
    with pool.lease("s", EMBED):
        clock.now = 100.0
        assert pool.unload_if_idle() is False
    clock.now = 200.0
    assert pool.unload_if_idle() is True


def test_work_next_to_searches_takes_their_models_despite_notes_on_other_roles() -> None:
    models = Models(notes=("reranking is slow here",))
    pool = EnginePool(models)
    for _ in range(3):
        with pool.engines("s", BOTH):
            pass
        with pool.lease("s", EMBED) as engines:
            assert engines.embedder is not None and engines.reranker is None
    assert len(models.loads) == 1


def test_work_next_to_searches_learns_why_its_model_is_missing() -> None:
    pool = EnginePool[str](lambda settings, roles: Engines(None, None, None, ("no model",)))
    with pool.lease("s", EMBED) as engines:
        assert engines.notes == ("no model",)


def test_searches_use_the_models_side_by_side() -> None:
    models = Models()
    pool = EnginePool(models)
    with pool.engines("s", BOTH) as first, pool.engines("s", EMBED) as second:
        assert first.embedder is second.embedder is not None
    assert len(models.loads) == 1


def test_a_search_that_needs_other_models_waits_and_those_behind_it_wait_for_it() -> None:
    pool, order, entered = EnginePool(Models()), list[str](), threading.Event()

    def search(settings: str) -> None:
        entered.set()
        with pool.engines(settings, EMBED):
            order.append(settings)

    threads = []
    with pool.engines("a", EMBED):
        for settings in ("b", "a"):
            entered.clear()
            threads.append(threading.Thread(target=search, args=(settings,)))
            threads[-1].start()
            entered.wait(5)
            until(lambda: len(pool._door._present) == len(threads))
        assert order == []
    for thread in threads:
        thread.join(5)
    assert order == ["b", "a"]


def test_models_in_use_are_not_dropped_and_waiting_for_them_has_an_end() -> None:
    models = Models()
    pool = EnginePool(models)
    with pool.engines("s", EMBED):
        pool.unload(0.01)
        with pool.engines("s", EMBED):
            assert len(models.loads) == 1

        def give_up() -> None:
            raise CancelledSearch

        with pytest.raises(CancelledSearch), pool.engines("other", EMBED, give_up):
            pass
    pool.unload(0.01)
    with pool.engines("s", EMBED):
        assert len(models.loads) == 2


@pytest.mark.parametrize("places", [1, 2])
def test_who_comes_first_is_served_first(places: int) -> None:
    line, served, done = FifoSemaphore(places), list[int](), threading.Event()

    def enter(number: int) -> None:
        with line.turn():
            served.append(number)
            done.wait(5)

    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=enter, args=(number,)))
        threads[-1].start()
        until(lambda: len(line._present) == len(threads))
    until(lambda: len(served) == places)
    assert sorted(served) == list(range(places))
    done.set()
    for thread in threads:
        thread.join(5)
    # Several threads that enter at once may report in any order.
    assert len(served) == 6 and (places > 1 or served == sorted(served))


def test_who_leaves_the_line_lets_the_next_one_in() -> None:
    line = FifoSemaphore(1)

    def leave() -> None:
        raise CancelledSearch

    with line.turn(), pytest.raises(CancelledSearch), line.turn(leave):
        pass
    with line.turn():
        assert len(line._present) == 1


def until(is_so: Callable[[], bool]) -> None:
    """Wait for another thread."""
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)
