"""Files of a model hub: what is known of one before it is fetched, and fetching it so that it can be resumed.

huggingface_hub gives addresses and the access token. Everything is asked for and streamed here: its own download starts
anew after an interruption, and its client asks for more than files. A partial file is kept and continued by a range
request.

Every fault ends: a try counts unless it gets a mebibyte further than all before it, and no more than twice a file's
size, and a little, is taken from the network for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from qmd.errors import ModelError
from qmd.foreign import commit_of
from qmd.inference.models.hub_answers import (
    RESUMES,
    RETRIED_STATUS,
    check_is_file,
    hub_client,
    pause_asked_for,
    refusal,
    why,
)

if TYPE_CHECKING:
    import httpx

_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_CONTENT_RANGE = re.compile(r"^bytes (?:(\d+)-\d+|\*)/(\d+|\*)$")
_HUB_TRIES = 3
"""Tries for what the hub knows of a file."""
_MAX_TRIES = 6
"""Tries in a row that get no further."""
_MAX_ASKED_ANEW = 2
"""Times in a row that the hub is asked for a file's address again."""
_PROGRESS_BYTES = 1 << 20
_SPARE_TRAFFIC_BYTES = 8 << 20
"""On top of twice a file's size."""
_SLOW_S, _SLOW_BYTES = 60.0, 1 << 16
"""A connection that brings less in this time is as good as dead."""
_MOST_UNTOLD_BYTES = 64 << 20
"""Of a file whose size nobody tells; such files are small."""


class HubFile(Struct, frozen=True):
    """A file as its hub describes it."""

    path: str
    """In its repository."""
    url: str
    size_bytes: int | None
    sha256: str | None
    """Known for large files; small ones carry another kind of tag."""
    commit: str | None
    headers: Mapping[str, str]
    repository: str | None = None
    """Of the hub, where the address can be asked for anew; None for an address of elsewhere."""
    revision: str = "main"
    endpoint: str | None = None

    @property
    def title(self) -> str:
        """The file as messages name it."""
        return f"'{self.path}' of '{self.repository}'" if self.repository else f"'{self.path}'"


def describe_file(
    repository: str,
    path: str,
    revision: str,
    endpoint: str | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> HubFile | None:
    """What the hub, or the mirror at `endpoint`, knows of a file; None where the repository has no such file.

    Raises:
        ModelError: If the hub cannot be reached, refuses, or has no such repository or revision.
    """
    import httpx
    from huggingface_hub import get_token, hf_hub_url

    endpoint, title = endpoint.rstrip("/") if endpoint else None, f"'{path}' of '{repository}'"
    try:
        url = hf_hub_url(repository, path, revision=revision, endpoint=endpoint)
        token = get_token()
        login = {"Authorization": f"Bearer {token}"} if token else {}
        for tries_left in reversed(range(_HUB_TRIES)):
            answer, told = _ask(url, login)
            if answer.status_code not in RETRIED_STATUS or not tries_left:
                break
            pause = pause_asked_for(answer, title)
            sleep(1.0 if pause is None else pause)
    except httpx.TooManyRedirects as exc:
        raise _endless(title) from exc
    except (OSError, ValueError, RuntimeError, httpx.HTTPError, httpx.InvalidURL) as exc:
        hint = "check the connection, or set HF_ENDPOINT to a mirror; qmd models pull resumes"
        raise ModelError(f"model hub cannot be reached for '{repository}': {why(exc)}", hint) from exc
    if answer.status_code == HTTPStatus.NOT_FOUND and told.get("X-Error-Code", "EntryNotFound") == "EntryNotFound":
        return None
    if answer.is_error:
        raise refusal(answer, title, repository, revision, endpoint, has_token=bool(token))
    # The file may lie with another host, which the token is not meant for and which may allow nothing but GET.
    elsewhere = answer.next_request
    if elsewhere is None:
        check_is_file(answer, title, path)
    size = told.get("X-Linked-Size") or ("" if elsewhere else told.get("Content-Length", ""))
    tag = (told.get("X-Linked-ETag") or told.get("ETag", "")).removeprefix("W/").strip('"').lower()
    return HubFile(
        path,
        str(elsewhere.url if elsewhere else answer.url),
        int(size) if size.isdecimal() else None,
        tag if _SHA256.match(tag) else None,
        commit_of(told.get("X-Repo-Commit")),
        login if elsewhere is None and "Authorization" in answer.request.headers else {},
        repository,
        revision,
        endpoint,
    )


def _ask(url: str, headers: Mapping[str, str]) -> tuple[httpx.Response, httpx.Headers]:
    """The last answer about a file, and what all the answers on the way tell of it.

    Redirects are followed on the same host, and elsewhere as long as nothing is told of the file.
    """
    import httpx

    with hub_client() as client:
        answer = client.head(url, headers={**headers, "Accept-Encoding": "identity"})
        told = answer.headers
        for _ in range(client.max_redirects):
            request = answer.next_request
            is_told = "X-Repo-Commit" in told or "X-Linked-Size" in told
            if request is None or (is_told and request.url.netloc != answer.url.netloc):
                return answer, told
            linked = {name: value for name, value in told.items() if name.startswith("x-")}
            answer = client.send(request)
            told = httpx.Headers({**answer.headers, **linked})
    raise httpx.TooManyRedirects("too many redirects", request=answer.request)


def _endless(title: str) -> ModelError:
    return ModelError(f"the server sends from one address to the next without end for {title}", "check HF_ENDPOINT")


def fetch(
    file: HubFile,
    target: Path,
    *,
    on_bytes: Callable[[int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Stream a file to `target`, continuing what `target` already holds.

    A dropped connection is resumed at the next byte; six tries in a row that get no further give up and keep the
    partial file. Where the address is refused, or leads to a file of another size, the hub is asked for it anew.

    `target` is a partial file, whole on return; `on_bytes` gets its size now and then.

    Raises:
        ModelError: If the server refuses, the connection keeps dropping, the disk is full, or the size is wrong.
    """
    import httpx

    download = _Download(file, target, on_bytes, clock)
    best, tries, asked_anew = download.held_bytes(), 0, 0
    with hub_client() as client:
        while not download.is_whole():
            try:
                download.go_on(client)
                continue
            except _Fault as found:
                fault = found
            except httpx.RemoteProtocolError:
                fault = download.cut_short()
            except httpx.TransportError as exc:
                fault = _Fault(why(exc))
            except httpx.TooManyRedirects as exc:
                raise _endless(file.title) from exc
            held = download.held_bytes()
            if held >= best + _PROGRESS_BYTES:
                best, tries, asked_anew = held, 0, 0
            tries += 1
            asked_anew += fault.is_address
            if tries >= _MAX_TRIES or asked_anew > _MAX_ASKED_ANEW or (fault.is_address and not file.repository):
                raise ModelError(f"download of {file.title} stopped: {fault}", fault.hint)
            if fault.is_address:
                download.file = _asked_anew(download.file)
            sleep(min(8.0, 0.5 * 2 ** (tries - 1)) if fault.pause_s is None else fault.pause_s)


def _asked_anew(file: HubFile) -> HubFile:
    """The file with the address that the hub gives for it now.

    Raises:
        ModelError: If the hub refuses, or has another file there by now.
    """
    assert file.repository is not None
    found = describe_file(file.repository, file.path, file.commit or file.revision, file.endpoint)
    digests = {file.sha256, found.sha256 if found else None} - {None}
    if found is None or found.size_bytes != file.size_bytes or len(digests) > 1:
        raise ModelError(f"{file.title} changed on the hub while it was fetched", "run it again: qmd models pull")
    return replace(file, url=found.url, headers=found.headers)


class _Fault(Exception):
    """Why a try failed, where another one may succeed.

    Attributes:
        pause_s: How long the server asks to wait.
        is_address: Whether the address is at fault.
        hint: What to do when no try succeeds.
    """

    def __init__(
        self, reason: str, *, pause_s: float | None = None, is_address: bool = False, hint: str = RESUMES
    ) -> None:
        super().__init__(reason)
        self.pause_s, self.is_address, self.hint = pause_s, is_address, hint


class _Download:
    """A file on its way: what is held of it, and what was taken from the network for it."""

    def __init__(
        self, file: HubFile, target: Path, on_bytes: Callable[[int], None] | None, clock: Callable[[], float]
    ) -> None:
        self.file = file
        self._target, self._on_bytes, self._clock = target, on_bytes, clock
        self._size = file.size_bytes
        self._taken = 0
        if self._size is not None and self.held_bytes() > self._size:
            target.unlink()

    def held_bytes(self) -> int:
        """Bytes of the partial file."""
        return self._target.stat().st_size if self._target.exists() else 0

    def is_whole(self) -> bool:
        """Whether the partial file has all its bytes; an empty one is made where that is the file."""
        if self._size == 0:
            self._target.touch()
        return self.held_bytes() == self._size

    def go_on(self, client: httpx.Client) -> None:
        """One try for the bytes that are missing.

        Raises:
            _Fault: It failed, and another one may succeed.
            ModelError: It failed for good.
        """
        held = self.held_bytes() if self._size is not None else 0
        headers = {**self.file.headers, "Accept-Encoding": "identity"}
        if held:
            headers["Range"] = f"bytes={held}-"
        with client.stream("GET", self.file.url, headers=headers, follow_redirects=True) as answer:
            self._check(answer, held)
            self._write(answer, held if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0)

    def _check(self, answer: httpx.Response, held: int) -> None:
        """Refuse an answer that is not the rest of the file, or all of it."""
        status = answer.status_code
        if status in RETRIED_STATUS:
            raise _Fault(f"the server answers {status}", pause_s=pause_asked_for(answer, self.file.title))
        found = _CONTENT_RANGE.match(answer.headers.get("Content-Range", ""))
        start, length = found.groups() if found else (None, None)
        if status == HTTPStatus.OK:
            start, length = "0", answer.headers.get("Content-Length")
        is_cut = status in (HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        if not answer.is_success and not is_cut:
            raise _Fault(f"the server answers {status}", is_address=True)
        check_is_file(answer, self.file.title, self.file.path)
        if length and length.isdecimal() and int(length) != (self._size or int(length)):
            self._begin_anew()
            raise self._wrong_size(f"the server has {length} bytes")
        if is_cut and start != str(held):
            self._begin_anew()
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
                f"cannot write {self.file.title} to '{self._target.parent}': {exc.strerror or why(exc)}",
                "free some space; qmd models pull resumes",
            ) from exc
        if self._size is None:
            self._size = done
        elif done < self._size:
            raise self.cut_short()

    def cut_short(self) -> _Fault:
        """What to say of a connection that ended before the file did."""
        size = "an unknown number of" if self._size is None else self._size
        return _Fault(f"the connection ended early, after {self.held_bytes()} of {size} bytes")

    def _count(self, n_bytes: int, done: int) -> None:
        """Stop a server that sends more than there is."""
        self._taken += n_bytes
        if done > (_MOST_UNTOLD_BYTES if self._size is None else self._size):
            self._begin_anew()
            raise self._wrong_size(f"the server sent {done} bytes and more")
        if self._size is not None and self._taken > 2 * self._size + _SPARE_TRAFFIC_BYTES:
            raise ModelError(
                f"download of {self.file.title} stopped: the server sent {self._taken} bytes of a file of {self._size}"
                " and never all of it",
                "it does not continue downloads: try another network, or set HF_ENDPOINT to a mirror",
            )

    def _begin_anew(self) -> None:
        self._target.unlink(missing_ok=True)

    def _wrong_size(self, what: str) -> _Fault:
        promised = f"of {self._size} promised" if self._size is not None else "and the hub tells no size"
        hint = "the mirror may be out of date: try again later, or unset HF_ENDPOINT"
        return _Fault(f"{what} {promised}", is_address=True, hint=hint)
