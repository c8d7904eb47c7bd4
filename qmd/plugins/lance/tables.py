"""The tables of an index, and the one row that names the version of each that belongs together.

A change makes new versions of tables, which are invisible until that row names them: a reader sees the versions that it
named when the reader was opened, and the next writer undoes the changes of a killed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import lancedb
import pyarrow as pa
from lancedb.db import DBConnection
from lancedb.index import FTS, BTree
from lancedb.table import LanceTable

from qmd.batching import batches
from qmd.errors import BusyError, NotFoundError, QmdError, StoreError
from qmd.file_names import to_disk
from qmd.plugins.lance.state import FORMAT, INDEXES, SCHEMAS, STEMMED, VECTOR_INDEXES, State, decode_state, encode_state

if TYPE_CHECKING:
    from lancedb.query import FullTextQuery

_STORE_MESSAGES = re.compile(r"<Message>([^<]+)</Message>")
"""The message of an object store, in the middle of the Rust library's message."""

_IN_ITS_SOURCE = re.compile(r"^(lance error: )?(LanceError\(\w+\): )?|, (location: Location|/[^ ,]*\.rs:).*", re.DOTALL)
"""Text of the Rust library around the reason."""

_ELSEWHERE = re.compile(
    r"Generic (?:S3|GCS|Azure|HTTP)|<Message>|denied|No space|Too many open|conflict|concurrent|timed? ?out|"
    r"newer|not supported|unsupported|feature flag|storage version",
    re.IGNORECASE,
)
"""Signs that the tables may be sound: the place has a problem, or another process or version uses them."""

LOCAL = "lance:"
"""Scheme of the address of an index in a folder."""

STATE = "state"
"""The table of the one row."""

_IN_ONE_QUERY = 1_000

_KEPT_BYTES = 512 * 2**20
"""Most cached bytes of indexes per process; file metadata gets a quarter as much."""

UNINDEXED = 1_000
"""Most documents missing from the full-text index after a change; a search reads each of them, in about 0.2 ms.
Adding them rewrites the whole index, 0.5 ms for each document in it."""

REBUILD = "rebuild the damaged parts from your files: qmd index --verify"

Row = dict[str, Any]
Found = TypeVar("Found")


class Change(Protocol):
    """LanceDB's result of a change."""

    version: int


def literal(value: object) -> str:
    """Return a value as a literal of a condition."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def is_in(column: str, values: Iterable[object]) -> str:
    """Return the condition that a column has one of these values."""
    listed = ", ".join(map(literal, values))
    return f"{column} IN ({listed})" if listed else "false"


def both(*conditions: str) -> str:
    """Return the conjunction of these conditions, skipping empty ones."""
    return " AND ".join(f"({one})" for one in conditions if one)


def reason_and_hint(text: str) -> tuple[str, str]:
    """Return the reason and a remedy for a message of LanceDB, which also contains places in its own source."""
    if "credentials" in text.lower():
        return "there are no credentials for it", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "resolve region" in text:
        return "the region of its bucket is not known, or there is no such bucket", "set AWS_REGION, or check the name"
    message = _STORE_MESSAGES.search(text)
    reason = " ".join((message[1] if message else _IN_ITS_SOURCE.sub("", text)).split())
    if _ELSEWHERE.search(text):
        return reason[:300], "check that the place can be reached and written, then run the command again"
    return reason[:300], REBUILD


class _CachedTable(LanceTable):  # type: ignore[misc]
    """A table that reads its columns once, which no change alters: LanceDB does so three times for each query."""

    schema = cached_property(LanceTable.schema.fget)


class Connection:
    """LanceDB at the address of an index; every failure there becomes a `StoreError`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.kept: Tables | None = None
        self.folder = Path(to_disk(address.removeprefix(LOCAL))) if address.startswith(LOCAL) else None

    @cached_property
    def _database(self) -> DBConnection:
        # Connecting creates a folder.
        with self.failing():
            session = lancedb.Session(index_cache_size_bytes=_KEPT_BYTES, metadata_cache_size_bytes=_KEPT_BYTES // 4)
            return lancedb.connect(str(self.folder) if self.folder else self.address, session=session)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Convert failures of LanceDB calls in this block."""
        try:
            yield
        except QmdError:
            raise
        # LanceDB raises any kind of error, with the message of the Rust library; for an unexpected damaged file a class
        # of its own, which cannot be imported.
        except Exception as exc:
            reason, hint = reason_and_hint(str(exc) or type(exc).__name__)
            raise StoreError(f"index '{self.address}' cannot be used: {reason}", hint) from exc

    def open(self, name: str, version: int | None = None) -> LanceTable:
        """Return a table, in its newest version or in this one."""
        with self.failing():
            table: LanceTable = _CachedTable.open(self._database, name)
            if version is not None:
                table.checkout(version)
            return table

    def names(self) -> list[str]:
        """Return all existing tables, those of unfinished changes included."""
        with self.failing():
            return list(self._database.list_tables(limit=10_000).tables)

    def create(self, name: str, schema: pa.Schema) -> LanceTable:
        """Create a table with its indexes, replacing an unknown one."""
        with self.failing():
            self._database.drop_table(name, ignore_missing=True)
            table: LanceTable = self._database.create_table(name, schema=schema)
            for column, kind in INDEXES.get(name, VECTOR_INDEXES).items():
                table.create_index(column, config=STEMMED if kind is FTS else kind())
            return table

    def drop(self, name: str) -> None:
        with self.failing():
            self._database.drop_table(name, ignore_missing=True)

    def open_state(self) -> LanceTable:
        """Return the table of the one row.

        Raises:
            NotFoundError: There is no index.
        """
        # Connecting would create the folder even if the index is only looked up.
        if self.folder is None or self.folder.joinpath(f"{STATE}.lance").is_dir():
            with self.failing():
                try:
                    return self._database.open_table(STATE)
                except (FileNotFoundError, ValueError) as exc:
                    if "not found" not in str(exc):
                        raise
        raise NotFoundError(f"no index at '{self.address}'", "make one: qmd index ~/notes")

    def create_state(self, state: State | None = None) -> None:
        """Create the one row, unless another writer does so at the same time."""
        row = pa.table({"owner": [""], "beat": [0], "state": [encode_state(state or State())]})
        with self.failing():
            try:
                self._database.create_table(STATE, data=row)
            except (ValueError, OSError, RuntimeError) as exc:
                if "exist" not in str(exc):
                    raise

    def read_state(self, table: LanceTable) -> State:
        """Return the last committed state.

        Raises:
            StoreError: A newer qmd wrote it.
        """
        with self.failing():
            table.checkout_latest()
            [row] = table.search().select(["state"]).to_list()
            state = decode_state(row["state"])
        if state.format > FORMAT:
            message = f"index '{self.address}' was written by a newer qmd (version {state.format})"
            raise StoreError(message, "upgrade qmd")
        return state


class Tables:
    """The tables in the versions that belong to one state."""

    _most_known = 2_000  # counts of words and the like

    def __init__(self, connection: Connection, state: State) -> None:
        self.connection = connection
        self.state = state
        self.is_over: Callable[[], bool] | None = None
        self._open: dict[str, LanceTable] = {}
        self._known: dict[Hashable, Any] = {}

    def share(self) -> Self:
        """Reuse the tables and counts of other readers of this connection, as long as the state is the same."""
        kept = self.connection.kept
        if kept is None or kept.state != self.state:
            kept = self.connection.kept = self
        self._open, self._known = kept._open, kept._known
        return self

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Return the result of `find`, cached by key as long as the state is the same."""
        found: Found = self._known[key] if key in self._known else find()
        if len(self._known) < self._most_known:
            self._known[key] = found
        return found

    def table(self, name: str) -> LanceTable | None:
        """Return a table, None for one that was never filled."""
        if name not in self.state.versions:
            return None
        if name not in self._open:
            self._open[name] = self.connection.open(name, self.state.versions[name])
        return self._open[name]

    def check(self) -> None:
        """Raise once the request is over; LanceDB itself cannot be stopped."""
        if self.is_over is not None and self.is_over():
            raise StoreError("the query was interrupted")

    def select(self, name: str, columns: Sequence[str], where: str = "") -> list[Row]:
        found = self.arrow(name, columns, where)
        rows: list[Row] = [] if found is None else found.to_pylist()
        return rows

    def arrow(self, name: str, columns: Sequence[str], where: str = "") -> pa.Table | None:
        """Return rows of a table as columns; None for a table that was never filled."""
        self.check()
        table = self.table(name)
        if table is None or where == "false":
            return None
        with self.connection.failing():
            query = table.search().select(list(columns)).limit(None)
            return (query.where(where) if where else query).to_arrow()

    def select_in(
        self, name: str, columns: Sequence[str], column: str, values: Sequence[object], where: str = ""
    ) -> Iterator[Row]:
        """Yield rows that have one of any number of values in a column."""
        for part in batches(values, _IN_ONE_QUERY):
            yield from self.select(name, columns, both(is_in(column, part), where))

    def count(self, name: str, where: str = "") -> int:
        self.check()
        if (table := self.table(name)) is None:
            return 0
        with self.connection.failing():
            return int(table.count_rows(where or None))

    def match(
        self, query: FullTextQuery, k: int, where: str = "", columns: Sequence[str] = ("id", "_score")
    ) -> pa.Table:
        """Return the best `k` documents by BM25, conditions applied first."""
        self.check()
        table = self.table("documents")
        if table is None or k <= 0:
            return pa.table({})
        with self.connection.failing():
            search = table.search(query).limit(k).select(list(columns))
            return (search.where(where, prefilter=True) if where else search).to_arrow()


class OpenTables(Tables):
    """The tables during a change of their newest versions, for the writer that has claimed them.

    Args:
        connection: The index.
        state: The last committed state; becomes the next one.
        confirm: Raises if another writer has taken over the claim.
    """

    _most_known = 0

    def __init__(self, connection: Connection, state: State, confirm: Callable[[], None]) -> None:
        super().__init__(connection, state)
        self._confirm = confirm
        self.words: set[str] | None = None
        """All of the table `words`, once new ones were looked for; a later transaction of this writer may have it."""

    def table(self, name: str) -> LanceTable | None:
        if name not in self._open and name in self.state.versions:
            table = self.connection.open(name)
            if table.version != self.state.versions[name]:
                # A writer was killed before its changes were complete, or this one was taken for dead.
                self._confirm()
                with self.connection.failing():
                    table.checkout(self.state.versions[name])
                    table.restore()
            self.state.versions[name] = table.version
            self._open[name] = table
        return self._open.get(name)

    def change(self, name: str, apply: Callable[[LanceTable], Change], schema: pa.Schema | None = None) -> None:
        """Change a table, creating it if missing.

        Raises:
            BusyError: Another writer has changed it, because it took this one for dead.
        """
        table = self.table(name)
        if table is None:
            table = self._open[name] = self.connection.create(name, schema or SCHEMAS[name])
            self.state.versions[name] = table.version
        try:
            with self.connection.failing():
                version = apply(table).version
        except StoreError:
            self._confirm()
            raise
        if version > self.state.versions[name] + 1:
            raise takeover_error(self.connection.address)
        self.state.versions[name] = version

    def add(self, name: str, rows: pa.Table | Sequence[Row], schema: pa.Schema | None = None) -> None:
        columns = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema or SCHEMAS[name])
        if columns.num_rows:
            self.change(name, lambda table: table.add(columns), schema)

    def delete(self, name: str, where: str) -> None:
        if self.table(name) is not None and where != "false":
            self.change(name, lambda table: table.delete(where))

    def delete_in(self, name: str, column: str, values: Sequence[object], where: str = "") -> None:
        """Delete rows that have one of any number of values in a column."""
        for part in batches(values, _IN_ONE_QUERY):
            self.delete(name, both(is_in(column, part), where))

    def patch_documents(self, rows: Sequence[Row]) -> None:
        """Change columns of documents; each row has the `id` and the new values of the same columns."""
        if rows and (table := self.table("documents")) is not None:
            columns = pa.Table.from_pylist(rows, pa.schema([SCHEMAS["documents"].field(name) for name in rows[0]]))
            with self.connection.failing():
                n_unindexed = table.index_stats("id_idx").num_unindexed_rows
            # They are found by reading all columns, and each change removes the rows of whole files from the index.
            if n_unindexed > UNINDEXED:
                self.change("documents", lambda table: table.create_index("id", config=BTree()) or table)
            self.change("documents", lambda table: table.merge_insert("id").when_matched_update_all().execute(columns))


def takeover_error(address: str) -> BusyError:
    """Return the error for a writer that was silent for so long that another one took over."""
    return BusyError(f"another process has taken over index '{address}'", "run the command again")
