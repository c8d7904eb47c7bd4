"""The tables of an index, and the one row that names the version of each that belongs together.

A change makes new versions of tables, which nobody sees before that row names them: a reader looks at the versions that
it named when the reader was opened, and what a killed writer left behind is undone by the next one.
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
from qmd.plugins.lance.state import (
    FORMAT,
    INDEXES,
    SCHEMAS,
    STEMMED,
    VECTOR_INDEXES,
    State,
    decode_state,
    encode_state,
)

if TYPE_CHECKING:
    from lancedb.query import FullTextQuery

_STORE_MESSAGES = re.compile(r"<Message>([^<]+)</Message>")
"""The sentence of an object store, in the middle of what the Rust library says of it."""

_IN_ITS_SOURCE = re.compile(r"^(lance error: )?(LanceError\(\w+\): )?|, (location: Location|/[^ ,]*\.rs:).*", re.DOTALL)
"""What the Rust library says of itself around the reason."""

_ELSEWHERE = re.compile(
    r"Generic (?:S3|GCS|Azure|HTTP)|<Message>|denied|No space|Too many open|conflict|concurrent|timed? ?out|"
    r"newer|not supported|unsupported|feature flag|storage version",
    re.IGNORECASE,
)
"""Signs that the tables may be sound: the place is in trouble, or somebody else or another version is at them."""

LOCAL = "lance:"
"""What the address of an index in a folder begins with."""

STATE = "state"
"""The table of the one row."""

_IN_ONE_QUERY = 1_000

_KEPT_BYTES = 512 * 2**20
"""Of indexes, and a quarter as much of what stands about files, a process keeps at most."""

UNINDEXED = 1_000
"""Documents that a search reads one by one because the full-text index lacks them, at most when a change is complete:
about 0.2 ms each. Bringing them in writes the whole index anew, 0.5 ms for each document that there is."""

REBUILD = "build what is damaged again from your files: qmd index --verify"

Row = dict[str, Any]
Found = TypeVar("Found")


class Change(Protocol):
    """What LanceDB answers to a change."""

    version: int


def literal(value: object) -> str:
    """A value in a condition."""
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def is_in(column: str, values: Iterable[object]) -> str:
    """The condition that a column has one of these values."""
    listed = ", ".join(map(literal, values))
    return f"{column} IN ({listed})" if listed else "false"


def both(*conditions: str) -> str:
    """The condition that all of these hold; empty ones always do."""
    return " AND ".join(f"({one})" for one in conditions if one)


def reason_and_hint(text: str) -> tuple[str, str]:
    """What went wrong and what to do, of what LanceDB says, which tells the places in its own source as well."""
    if "credentials" in text.lower():
        return "there are no credentials for it", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "resolve region" in text:
        return "the region of its bucket is not known, or there is no such bucket", "set AWS_REGION, or see the name"
    said = _STORE_MESSAGES.search(text)
    reason = " ".join((said[1] if said else _IN_ITS_SOURCE.sub("", text)).split())
    if _ELSEWHERE.search(text):
        return reason[:300], "see that the place can be reached and written, then run the command again"
    return reason[:300], REBUILD


class _Table(LanceTable):  # type: ignore[misc]
    """Asks once for its columns, which no change has others of: LanceDB does so three times for each query."""

    schema = cached_property(LanceTable.schema.fget)


class Connection:
    """LanceDB at the address of an index; whatever fails there fails as a `StoreError`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.kept: Tables | None = None
        place = address.removeprefix(LOCAL)
        self.folder = Path(to_disk(place)) if address.startswith(LOCAL) else None

    @cached_property
    def _database(self) -> DBConnection:
        # A folder is made by connecting to it.
        with self.failing():
            session = lancedb.Session(index_cache_size_bytes=_KEPT_BYTES, metadata_cache_size_bytes=_KEPT_BYTES // 4)
            return lancedb.connect(str(self.folder) if self.folder else self.address, session=session)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Calls of LanceDB stand in this block."""
        try:
            yield
        except QmdError:
            raise
        # LanceDB raises errors of any kind, with the words of the Rust library, whatever has happened; a class of its
        # own, which cannot be imported, where that meets a damaged file that it does not expect.
        except Exception as exc:
            reason, hint = reason_and_hint(str(exc) or type(exc).__name__)
            raise StoreError(f"index '{self.address}' cannot be used: {reason}", hint) from exc

    def open(self, name: str, version: int | None = None) -> LanceTable:
        """A table, in its newest version or in this one."""
        with self.failing():
            table: LanceTable = _Table.open(self._database, name)
            if version is not None:
                table.checkout(version)
            return table

    def names(self) -> list[str]:
        """All tables that are there, those of unfinished changes among them."""
        with self.failing():
            return list(self._database.list_tables(limit=10_000).tables)

    def create(self, name: str, schema: pa.Schema) -> LanceTable:
        """A new table with its indexes, in the place of one that nobody knows of."""
        with self.failing():
            self._database.drop_table(name, ignore_missing=True)
            table: LanceTable = self._database.create_table(name, schema=schema)
            for column, kind in INDEXES.get(name, VECTOR_INDEXES).items():
                table.create_index(column, config=STEMMED if kind is FTS else kind())
            return table

    def drop(self, name: str) -> None:
        """Remove a table at once."""
        with self.failing():
            self._database.drop_table(name, ignore_missing=True)

    def open_state(self) -> LanceTable:
        """The table of the one row.

        Raises:
            NotFoundError: There is no index.
        """
        # Connecting would make the folder of an index that is only asked for.
        if self.folder is None or self.folder.joinpath(f"{STATE}.lance").is_dir():
            with self.failing():
                try:
                    return self._database.open_table(STATE)
                except (FileNotFoundError, ValueError) as exc:
                    if "not found" not in str(exc):
                        raise
        raise NotFoundError(f"no index at '{self.address}'", "make one: qmd index .")

    def create_state(self) -> None:
        """Make the one row, unless another writer does so at the same time."""
        row = pa.table({"owner": [""], "beat": [0], "state": [encode_state(State())]})
        with self.failing():
            try:
                self._database.create_table(STATE, data=row)
            except (ValueError, OSError, RuntimeError) as exc:
                if "exist" not in str(exc):
                    raise

    def read_state(self, table: LanceTable) -> State:
        """The state that was committed last.

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
        """Have what other readers of this connection opened and counted, as long as the state is the same."""
        kept = self.connection.kept
        if kept is None or kept.state != self.state:
            kept = self.connection.kept = self
        self._open, self._known = kept._open, kept._known
        return self

    def once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """What `find` gives, by whatever tells that apart: it is true as long as the state is the same."""
        found: Found = self._known[key] if key in self._known else find()
        if len(self._known) < self._most_known:
            self._known[key] = found
        return found

    def table(self, name: str) -> LanceTable | None:
        """A table, None for one that was never filled."""
        if name not in self.state.versions:
            return None
        if name not in self._open:
            self._open[name] = self.connection.open(name, self.state.versions[name])
        return self._open[name]

    def check(self) -> None:
        """Raise once nobody waits any more; LanceDB itself cannot be stopped."""
        if self.is_over is not None and self.is_over():
            raise StoreError("the query was interrupted")

    def select(self, name: str, columns: Sequence[str], where: str = "") -> list[Row]:
        """Rows of a table."""
        found = self.arrow(name, columns, where)
        rows: list[Row] = [] if found is None else found.to_pylist()
        return rows

    def arrow(self, name: str, columns: Sequence[str], where: str = "") -> pa.Table | None:
        """Rows of a table as columns; None for a table that was never filled."""
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
        """Rows that have one of any number of values in a column."""
        for part in batches(values, _IN_ONE_QUERY):
            yield from self.select(name, columns, both(is_in(column, part), where))

    def count(self, name: str, where: str = "") -> int:
        """Number of rows."""
        self.check()
        table = self.table(name)
        if table is None:
            return 0
        with self.connection.failing():
            return int(table.count_rows(where or None))

    def match(
        self, query: FullTextQuery, k: int, where: str = "", columns: Sequence[str] = ("id", "_score")
    ) -> pa.Table:
        """The best `k` documents by BM25, conditions applied first."""
        self.check()
        table = self.table("documents")
        if table is None or k <= 0:
            return pa.table({})
        with self.connection.failing():
            search = table.search(query).limit(k).select(list(columns))
            return (search.where(where, prefilter=True) if where else search).to_arrow()


class OpenTables(Tables):
    """The tables while their newest versions are being made, for the writer that has claimed them.

    Args:
        connection: The index.
        state: What was committed last; becomes what is to be committed next.
        confirm: Raises where the claim has been taken over.
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
                # A writer was killed before its changes were complete; or it was this one that was taken for dead.
                self._confirm()
                with self.connection.failing():
                    table.checkout(self.state.versions[name])
                    table.restore()
            self.state.versions[name] = table.version
            self._open[name] = table
        return self._open.get(name)

    def change(self, name: str, apply: Callable[[LanceTable], Change], schema: pa.Schema | None = None) -> None:
        """Change a table, which is made where there is none.

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
            raise taken_over(self.connection.address)
        self.state.versions[name] = version

    def add(self, name: str, rows: pa.Table | Sequence[Row], schema: pa.Schema | None = None) -> None:
        """Append rows."""
        columns = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema or SCHEMAS[name])
        if columns.num_rows:
            self.change(name, lambda table: table.add(columns), schema)

    def delete(self, name: str, where: str) -> None:
        """Delete rows."""
        if self.table(name) is not None and where != "false":
            self.change(name, lambda table: table.delete(where))

    def delete_in(self, name: str, column: str, values: Sequence[object], where: str = "") -> None:
        """Delete rows that have one of any number of values in a column."""
        for part in batches(values, _IN_ONE_QUERY):
            self.delete(name, both(is_in(column, part), where))

    def patch_documents(self, rows: Sequence[Row]) -> None:
        """Change columns of documents; each row has the `id` and the new values of the same columns."""
        table = self.table("documents") if rows else None
        if table is not None:
            schema = pa.schema([SCHEMAS["documents"].field(name) for name in rows[0]])
            columns = pa.Table.from_pylist(rows, schema)
            with self.connection.failing():
                n_unindexed = table.index_stats("id_idx").num_unindexed_rows
            # They are found by reading all columns, and each change takes the rows of whole files out of the index.
            if n_unindexed > UNINDEXED:
                self.change("documents", lambda table: table.create_index("id", config=BTree()) or table)
            self.change("documents", lambda table: table.merge_insert("id").when_matched_update_all().execute(columns))


def taken_over(address: str) -> BusyError:
    """What a writer learns that was silent for so long that another one took its place."""
    return BusyError(f"another process has taken over index '{address}'", "run the command again")
