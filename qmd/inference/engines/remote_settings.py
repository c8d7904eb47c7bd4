"""Which model server serves a role: from the model that was asked for and the environment.

A model written as `http://host:8000/v1#name` is a server's; the URL may also come from `QMD_EMBED_URL`,
`QMD_RERANK_URL`, `QMD_GENERATE_URL`. Keys come from `QMD_*_API_KEY` or `QMD_API_KEY` alone, for configurations are
shared. With `QMD_OFFLINE` set only servers on this machine are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from qmd.environment import is_on
from qmd.errors import ModelError
from qmd.inference.engines.remote_client import DEFAULT_TIMEOUT_S, RemoteSettings
from qmd.inference.models.catalogue import Role

_ENV_STEMS: Mapping[Role, str] = {"embed": "QMD_EMBED", "rerank": "QMD_RERANK", "expand": "QMD_GENERATE"}


def is_remote(model: str) -> bool:
    """True for a model that is written as a server's address."""
    return model.strip().lower().startswith(("http://", "https://"))


def remote_settings(role: Role, model: str, env: Mapping[str, str]) -> RemoteSettings | None:
    """The server that serves a role, or None for a model of this machine.

    Args:
        role: The role.
        model: What was asked for: `http://host/v1#name`, or the name on the server of `QMD_*_URL`; empty for none.
        env: `QMD_*_URL`, `QMD_*_API_KEY`, `QMD_API_KEY`, `QMD_REMOTE_TIMEOUT`, `QMD_EMBED_DIM`,
            `QMD_EMBED_QUERY_PROMPT`, `QMD_EMBED_DOCUMENT_PROMPT`.

    Raises:
        ModelError: A server without a model's name, or a number that is none.
    """
    stem = _ENV_STEMS[role]
    url, name = env.get(f"{stem}_URL", "").strip(), model.strip()
    if is_remote(name):
        url, _, name = name.partition("#")
    if not url:
        return None
    if not name:
        raise ModelError(f"model server '{url}' is named without a model", f"write {url}#NAME, or set {stem}_MODEL")
    key = env.get(f"{stem}_API_KEY") or env.get("QMD_API_KEY")
    dim = _positive(env, "QMD_EMBED_DIM") if role == "embed" else None
    return RemoteSettings(
        url,
        name,
        api_key=key.strip() if key else None,
        timeout_s=_positive(env, "QMD_REMOTE_TIMEOUT") or DEFAULT_TIMEOUT_S,
        dim=None if dim is None else int(dim),
        document_prompt=env.get("QMD_EMBED_DOCUMENT_PROMPT", "") if role == "embed" else "",
        query_prompt=env.get("QMD_EMBED_QUERY_PROMPT", "") if role == "embed" else "",
    )


def is_offline(env: Mapping[str, str]) -> bool:
    """True when `QMD_OFFLINE` is set to anything but an off-word."""
    return is_on(env.get("QMD_OFFLINE"))


def _positive(env: Mapping[str, str], name: str) -> float | None:
    """A variable as a number above 0; None where it is not set."""
    text = env.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ModelError(f"{name} is '{text}', not a number above 0", f"unset {name}, or write a number")
    return number
