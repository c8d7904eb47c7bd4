"""Files of a model hub: what is known of one before it is fetched, and fetching it so that it can be resumed.

huggingface_hub gives addresses, access tokens, mirrors (`HF_ENDPOINT`) and metadata. The bytes are streamed here,
because its own download starts anew after an interruption: a partial file is kept and continued by a range request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from msgspec import Struct

from qmd.errors import ModelError

_SHA256 = re.compile(r"^[0-9a-f]{64}$")
_CHUNK_BYTES = 1 << 20
_USER_AGENT = "qmd"
"""In place of the client's own, which names the versions of Python and of packages."""
_TIMEOUT_S = 30.0
_MAX_TRIES = 6
"""Tries in a row without a new byte."""
_RETRIED_STATUS = frozenset({408, 429, 500, 502, 503, 504})


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


def describe_file(repository: str, path: str, revision: str, endpoint: str | None = None) -> HubFile | None:
    """What the hub, or the mirror at `endpoint`, knows of a file; None where the repository has no such file.

    Raises:
        ModelError: If the hub cannot be reached, or has no such repository.
    """
    import httpx
    from huggingface_hub import get_hf_file_metadata, get_token, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RepositoryNotFoundError

    endpoint = endpoint.rstrip("/") if endpoint else None
    try:
        url = hf_hub_url(repository, path, revision=revision, endpoint=endpoint)
        found = get_hf_file_metadata(url, endpoint=endpoint, headers={"user-agent": _USER_AGENT})
    except EntryNotFoundError:
        return None
    except GatedRepoError as exc:
        raise ModelError(f"'{repository}' asks for a login", "accept its terms, then: huggingface-cli login") from exc
    except RepositoryNotFoundError as exc:
        raise ModelError(f"the hub has no model '{repository}'", "see: qmd models list") from exc
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as exc:
        reason = " ".join(str(exc).split())[:160] or type(exc).__name__
        hint = "check the connection, or set HF_ENDPOINT to a mirror; qmd models pull resumes"
        raise ModelError(f"model hub cannot be reached for '{repository}': {reason}", hint) from exc
    if urlsplit(found.location).scheme not in ("http", "https"):
        raise ModelError(f"model hub names an unusable address for '{path}'", "check HF_ENDPOINT")
    headers = {"User-Agent": _USER_AGENT}
    token = get_token()
    # A file may lie with another host, which the token is not meant for.
    if token and urlsplit(found.location).netloc == urlsplit(url).netloc:
        headers["Authorization"] = f"Bearer {token}"
    tag = (found.etag or "").lower()
    return HubFile(path, found.location, found.size, tag if _SHA256.match(tag) else None, found.commit_hash, headers)


def fetch(
    file: HubFile,
    target: Path,
    *,
    on_bytes: Callable[[int], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Stream a file to `target`, continuing what `target` already holds.

    A dropped connection is resumed at the next byte; six tries in a row without progress give up and keep the partial
    file.

    `target` is a partial file, whole on return; `on_bytes` gets its size now and then.

    Raises:
        ModelError: If the server refuses, the connection keeps dropping, the disk is full, or the size is wrong.
    """
    tries = 0
    while True:
        before = target.stat().st_size if target.exists() else 0
        if file.size_bytes is not None and before == file.size_bytes:
            return
        if file.size_bytes is not None and before > file.size_bytes:
            target.unlink()
            before = 0
        reason = "the connection ended early"
        try:
            _stream(file, target, before, on_bytes)
            if file.size_bytes is None:
                return
        except HTTPError as exc:
            if exc.code == 416:
                # The partial file is from another version of this one.
                target.unlink(missing_ok=True)
            elif exc.code not in _RETRIED_STATUS:
                raise ModelError(f"model server answers {exc.code} for '{target.name}'", "qmd models pull") from exc
            reason = f"the server answers {exc.code}"
        except _DiskError as exc:
            raise ModelError(f"cannot write '{target}': {exc}", "free some space; qmd models pull resumes") from exc
        except (URLError, HTTPException, OSError) as exc:
            reason = " ".join(str(getattr(exc, "reason", exc)).split()) or type(exc).__name__
        after = target.stat().st_size if target.exists() else 0
        if file.size_bytes is not None and after == file.size_bytes:
            return
        tries = 1 if after > before else tries + 1
        if tries >= _MAX_TRIES:
            raise ModelError(f"download of '{target.name}' stopped: {reason}", "run it again: qmd models pull resumes")
        sleep(min(8.0, 0.5 * 2 ** (tries - 1)))


class _DiskError(Exception):
    """The file system refused a write, as opposed to the network a read."""


def _stream(file: HubFile, target: Path, offset: int, on_bytes: Callable[[int], None] | None) -> None:
    headers = {**file.headers, "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    with build_opener(_DropToken).open(Request(file.url, headers=headers), timeout=_TIMEOUT_S) as response:
        # A server that ignores the range sends everything.
        is_rest = response.status == 206
        done = offset if is_rest else 0
        try:
            stream = target.open("ab" if is_rest else "wb")
        except OSError as exc:
            raise _DiskError(exc.strerror or str(exc)) from exc
        with stream:
            while chunk := response.read(_CHUNK_BYTES):
                try:
                    stream.write(chunk)
                    stream.flush()
                except OSError as exc:
                    raise _DiskError(exc.strerror or str(exc)) from exc
                done += len(chunk)
                if on_bytes is not None:
                    on_bytes(done)


class _DropToken(HTTPRedirectHandler):
    """Follows a redirect without the access token, which urllib would hand on to any host."""

    def redirect_request(self, *args: Any) -> Request | None:
        request = super().redirect_request(*args)
        if request is not None:
            request.remove_header("Authorization")
        return request
