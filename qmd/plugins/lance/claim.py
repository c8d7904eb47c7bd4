"""The write claim: a mark in the row that names the state, set and removed by conditional updates.

If two updates of a row meet, LanceDB commits one of them, on a disk as on S3, and retries the other, which then finds
its condition false. So the mark passes from one writer to the next, whichever machines they run on.
"""

from __future__ import annotations

import random
import threading
import time
from uuid import uuid4

from lancedb.table import LanceTable

from qmd.errors import BusyError, StoreError
from qmd.plugins.lance.state import State, encode_state
from qmd.plugins.lance.tables import Connection, literal, takeover_error

BEAT_S = 3.0
"""Interval at which a writer shows that it is alive."""

SILENT_S = 15.0
"""Time without a beat, by the clock of the waiting process, after which a writer counts as dead."""

_LOOK_S = 0.1
_ATTEMPTS = 10


class Claim:
    """The right to write, for one transaction."""

    def __init__(self, connection: Connection, wait_s: float) -> None:
        self._connection = connection
        self._table = connection.open_state()
        self._owner = uuid4().hex
        self._ended = threading.Event()
        self._take(wait_s)
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def state(self) -> State:
        return self._connection.read_state(self._table)

    def confirm(self) -> None:
        """Check that no other writer took this one for dead.

        Raises:
            BusyError: Another one did.
        """
        if self._read_row()[0] != self._owner:
            raise takeover_error(self._connection.address)

    def end(self, state: State | None) -> None:
        """Commit a state, or with None leave it unchanged, and let others write.

        Raises:
            BusyError: Another writer took this one for dead; nothing was committed.
        """
        self._ended.set()
        self._beating.join()
        values: dict[str, str | int] = {"owner": "", "beat": 0}
        if state is not None:
            values["state"] = encode_state(state)
        if not self._update(self._table, self._owner, values) and state is not None:
            raise takeover_error(self._connection.address)

    def _take(self, wait_s: float) -> None:
        began = seen_at = time.monotonic()
        seen: tuple[str, int] | None = None
        while True:
            owner, beat = self._read_row()
            now = time.monotonic()
            if (owner, beat) != seen:
                seen, seen_at = (owner, beat), now
            if not owner or now - seen_at > SILENT_S:
                if self._update(self._table, owner, {"owner": self._owner, "beat": 0}, beat):
                    return
                continue
            if now - began >= wait_s:
                message = f"index '{self._connection.address}' is in use by another process"
                raise BusyError(message, "wait for the other qmd to finish, then try again")
            time.sleep(min(_LOOK_S, wait_s))

    def _read_row(self) -> tuple[str, int]:
        """Return the owner of the claim, and its last beat."""
        with self._connection.failing():
            self._table.checkout_latest()
            [row] = self._table.search().select(["owner", "beat"]).to_list()
            return row["owner"], row["beat"]

    def _beat(self) -> None:
        beat = 0
        table = self._connection.open_state()
        while not self._ended.wait(BEAT_S):
            try:
                beat += 1
                if not self._update(table, self._owner, {"beat": beat}):
                    return
            except StoreError:
                # The end of the transaction will find out whether the claim is still valid.
                continue

    def _update(self, table: LanceTable, owner: str, values: dict[str, str | int], beat: int | None = None) -> bool:
        """Change the row if it is still this owner's; return whether it was."""
        where = f"owner = {literal(owner)}" + ("" if beat is None else f" AND beat = {beat}")
        for attempt in range(_ATTEMPTS):
            try:
                with self._connection.failing():
                    table.checkout_latest()
                    return bool(table.update(where=where, values=values).rows_updated)
            except StoreError as error:
                # LanceDB gave up because too many others updated the row.
                if attempt == _ATTEMPTS - 1 or not any(word in error.message for word in ("conflict", "concurrent")):
                    raise
                time.sleep(_LOOK_S * random.random())
        return False
