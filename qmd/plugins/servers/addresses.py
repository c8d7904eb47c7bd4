"""Where a model server is asked: from the address that the user wrote to the endpoints that may be meant."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from qmd.errors import ModelError
from qmd.plugins.servers.apis import Api

AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")

_VERSION = re.compile(r"/v\d+$")


def endpoints(
    url: str, api: str | None, apis: Sequence[Api[AskT, AnswerT]]
) -> tuple[tuple[Api[AskT, AnswerT], str], ...]:
    """Interfaces and addresses to try, in that order; one alone where the address, its host or `api` tells.

    Args:
        url: Base (`http://host:8000/v1`), host alone, or the whole address of an endpoint.
        api: The interface that the user named.
        apis: Those of the role.

    Raises:
        ModelError: The URL is not http(s) or names no host, or no interface has that name.
    """
    parts = split_url(url)
    path = parts.path.rstrip("/")
    named = _named(api, parts.hostname or "", apis)
    matching = [ending for one in apis for ending in one.endings if path.endswith(ending)]
    if matching:
        ending = max(matching, key=len)
        paths = [(one, path) for one in named or [one for one in apis if ending in one.endings]]
    elif named:
        paths = [(one, _below(path, one)) for one in named]
    else:
        guessed = [one for one in apis if one.is_guessed]
        of_ollama = [one for one in apis if path.endswith("/api") and one.path.startswith("/api/")]
        at_root = [(one, _root(path) + one.path) for one in guessed if one.version is not None]
        paths = [*((one, _below(path, one)) for one in [*of_ollama, *guessed]), *at_root]
    unique = {(one.name, tried): (one, parts._replace(path=tried, fragment="").geturl()) for one, tried in paths}
    return tuple(unique.values())


def _named(api: str | None, host: str, apis: Sequence[Api[AskT, AnswerT]]) -> list[Api[AskT, AnswerT]]:
    """The interface that the user named, else the one that the service of this host speaks."""
    if api is None:
        return [one for one in apis if host.lower() in one.hosts]
    named = [one for one in apis if one.name == api.strip().lower()]
    if not named:
        known = ", ".join(f"'{one.name}'" for one in apis)
        raise ModelError(f"no interface of model servers is called '{api}' here", f"one of {known}")
    return named


def _below(path: str, api: Api[AskT, AnswerT]) -> str:
    """The endpoint under the base that the user wrote."""
    if api.version is None:
        return _root(path) + api.path
    return (path or api.version) + api.path


def _root(path: str) -> str:
    return _VERSION.sub("", path).removesuffix("/api")


def split_url(url: str) -> SplitResult:
    """The parts of a model server's address.

    Raises:
        ModelError: If the URL is not http(s), names no host, or holds a password.
    """
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ModelError(f"model server URL '{url}' is not an http address", "write it like http://localhost:8000/v1")
    if parts.username or parts.password:
        # The address is shown in messages and in the engine's description.
        raise ModelError(f"URL of model server '{host}' holds a password", "put the key into QMD_API_KEY")
    return parts


def shown_url(url: str) -> str:
    """For messages: without what follows the question mark, which may be a key."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def is_loopback(host: str) -> bool:
    """True for this machine's own addresses."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
