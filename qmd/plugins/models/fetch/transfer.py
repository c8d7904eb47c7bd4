"""Resumable download of a file of a model hub: a partial file is kept and continued by a range request.

Not by huggingface_hub: its download restarts after an interruption. Its `http_get` does not, but retries for ever with
a server that sends a little each time, has no limit of bytes, and reads 10 MiB at once, so that a slow server is not
noticed.

Every fault ends: a try counts unless it gets a mebibyte further than all before it, and at most twice a file's size,
and a little, is taken from the network for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.escapes import error_line
from qmd.plugins.models.fetch.hub import (
    RESUMES,
    RETRIED_STATUS,
    HubFile,
    check_is_file,
    describe_file,
    hub_client,
    retry_pause,
)

if TYPE_CHECKING:
    import httpx

_MAX_TRIES = 6
"""Consecutive tries without progress."""
_MAX_RETRIES = 2
"""Consecutive requests to the hub for a file's new address."""
_PROGRESS_BYTES = 1 << 20
_SPARE_TRAFFIC_BYTES = 8 << 20
"""Allowance on top of twice a file's size."""
_SLOW_S, _SLOW_BYTES = 60.0, 1 << 16
"""A connection that brings less in this time counts as dead."""
_MAX_UNDECLARED_BYTES = 64 << 20
"""Most bytes of a file of unknown size; such files are small."""


def fetch(
    file: HubFile,
    target: Path,
    *,
    on_bytes: Callable[[int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Stream a file to `target`, continuing its present content.

    A dropped connection is resumed at the next byte; six tries in a row without progress give up and keep the partial
    file. If the address is refused, or leads to a file of another size, the hub gives a new one.

    `target` is a partial file, complete on return; `on_bytes` gets its size now and then.

    Raises:
        ModelError: If the server refuses, the connection keeps dropping, the disk is full, or the size is wrong.
    """
    download = _Download(file, target, on_bytes, clock)
    best, tries, retries = download.stored_bytes(), 0, 0
    with hub_client(file.title) as client:
        while not download.is_whole():
            try:
                download.try_once(client)
            except _Fault as fault:
                if download.stored_bytes() >= best + _PROGRESS_BYTES:
                    best, tries, retries = download.stored_bytes(), 0, 0
                tries += 1
                retries += fault.is_address
                if tries >= _MAX_TRIES or retries > _MAX_RETRIES or (fault.is_address and not file.repository):
                    raise ModelError(f"download of {file.title} stopped: {fault}", fault.hint) from fault
                if fault.is_address:
                    download.file = _with_new_address(download.file)
                sleep(min(8.0, 0.5 * 2 ** (tries - 1)) if fault.pause_s is None else fault.pause_s)


def _with_new_address(file: HubFile) -> HubFile:
    """Return the file with a new address; a ModelError if the hub refuses, or now has another file."""
    assert file.repository is not None
    found = describe_file(file.repository, file.path, file.commit or file.revision, file.endpoint)
    digests = {file.sha256, found.sha256 if found else None} - {None}
    if found is None or found.size_bytes != file.size_bytes or len(digests) > 1:
        raise ModelError(f"{file.title} changed on the hub while it was fetched", "run it again: qmd models pull")
    return replace(file, url=found.url, headers=found.headers)


class _Fault(Exception):
    """Reason of a failed try, after which another one may succeed.

    Attributes:
        pause_s: Wait that the server asks for.
        is_address: The address is at fault.
        hint: Hint for the case that no try succeeds.
    """

    def __init__(
        self, reason: str, *, pause_s: float | None = None, is_address: bool = False, hint: str = RESUMES
    ) -> None:
        super().__init__(reason)
        self.pause_s, self.is_address, self.hint = pause_s, is_address, hint


class _Download:
    """A download in progress: the partial file and the traffic so far."""

    def __init__(
        self, file: HubFile, target: Path, on_bytes: Callable[[int], None] | None, clock: Callable[[], float]
    ) -> None:
        self.file = file
        self._target, self._on_bytes, self._clock = target, on_bytes, clock
        self._size = file.size_bytes
        self._taken = 0
        if self._size is not None and self.stored_bytes() > self._size:
            target.unlink()

    def stored_bytes(self) -> int:
        return self._target.stat().st_size if self._target.exists() else 0

    def is_whole(self) -> bool:
        """Return whether the partial file is complete; an empty file is created here."""
        if self._size == 0:
            self._target.touch()
        return self.stored_bytes() == self._size

    def try_once(self, client: httpx.Client) -> None:
        """Try once to fetch the missing bytes.

        Raises:
            _Fault: It failed, and another one may succeed.
            ModelError: It failed for good.
        """
        import httpx

        stored = self.stored_bytes() if self._size is not None else 0
        headers = {**self.file.headers, "Accept-Encoding": "identity"}
        if stored:
            headers["Range"] = f"bytes={stored}-"
        try:
            with client.stream("GET", self.file.url, headers=headers, follow_redirects=True) as answer:
                self._check(answer, stored)
                self._write(answer, stored if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0)
        except httpx.RemoteProtocolError as exc:
            raise self._early_end() from exc
        except httpx.TransportError as exc:
            raise _Fault(error_line(exc)) from exc

    def _check(self, answer: httpx.Response, stored: int) -> None:
        """Refuse an answer that is neither the rest of the file nor all of it."""
        status = answer.status_code
        if status in RETRIED_STATUS:
            raise _Fault(f"the server answers {status}", pause_s=retry_pause(answer, self.file.title))
        found = re.match(r"^bytes (?:(\d+)-\d+|\*)/(\d+|\*)$", answer.headers.get("Content-Range", ""))
        start, length = found.groups() if found else (None, None)
        if status == HTTPStatus.OK:
            start, length = "0", answer.headers.get("Content-Length")
        is_cut = status in (HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        if not answer.is_success and not is_cut:
            raise _Fault(f"the server answers {status}", is_address=True)
        check_is_file(answer, self.file)
        if length and length.isdecimal() and int(length) != (self._size or int(length)):
            raise self._wrong_size(f"the server has {length} bytes")
        if is_cut and start != str(stored):
            self._target.unlink(missing_ok=True)
            raise _Fault("the server does not continue where the file ends here")

    def _write(self, answer: httpx.Response, done: int) -> None:
        try:
            with self._target.open("ab" if done else "wb") as stream:
                since, slow_end = self._clock(), done + _SLOW_BYTES
                for chunk in answer.iter_raw():
                    stream.write(chunk)
                    stream.flush()
                    done += len(chunk)
                    self._count(len(chunk), done)
                    if self._on_bytes is not None:
                        self._on_bytes(done)
                    if self._clock() - since > _SLOW_S:
                        if done < slow_end:
                            raise _Fault(f"fewer than {_SLOW_BYTES >> 10} KiB came in a minute")
                        since, slow_end = self._clock(), done + _SLOW_BYTES
        except OSError as exc:
            raise ModelError(
                f"cannot write {self.file.title} to '{self._target.parent}': {exc.strerror or error_line(exc)}",
                "free some space; qmd models pull resumes",
            ) from exc
        if self._size is None:
            self._size = done
        elif done < self._size:
            raise self._early_end()

    def _count(self, n_bytes: int, done: int) -> None:
        """Stop a server that sends more than the file."""
        self._taken += n_bytes
        if done > (_MAX_UNDECLARED_BYTES if self._size is None else self._size):
            raise self._wrong_size(f"the server sent {done} bytes and more")
        if self._size is not None and self._taken > 2 * self._size + _SPARE_TRAFFIC_BYTES:
            raise ModelError(
                f"download of {self.file.title} stopped: the server sent {self._taken} bytes of a file of {self._size}"
                " and never all of it",
                "it does not continue downloads: try another network, or set HF_ENDPOINT to a mirror",
            )

    def _early_end(self) -> _Fault:
        """Return the fault of a connection that ended before the file did."""
        size = "an unknown number of" if self._size is None else self._size
        return _Fault(f"the connection ended early, after {self.stored_bytes()} of {size} bytes")

    def _wrong_size(self, what: str) -> _Fault:
        """Delete the partial file, and return the fault of a file of another size."""
        self._target.unlink(missing_ok=True)
        promised = f"of {self._size} promised" if self._size is not None else "and the hub tells no size"
        hint = "the mirror may be out of date: try again later, or unset HF_ENDPOINT"
        return _Fault(f"{what} {promised}", is_address=True, hint=hint)
