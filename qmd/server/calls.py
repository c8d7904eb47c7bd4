"""What commands may ask of a warm worker, as JSON on both sides: `search`, `describe` and `embed`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from qmd.retrieval.listening import Listener
from qmd.server.pools import Role
from qmd.server.service import SearchService
from qmd.server.wire import WireError, from_wire, to_wire


class Asker(Listener):
    """Who waits for the answer to a call; telling it something raises `OSError` when it has gone."""

    def progress(self, done: int, total: int, /) -> None:
        """Told how far the work is."""


class ServiceCalls:
    """The calls, answered by a service with the models that each call names."""

    def __init__(self, service: SearchService) -> None:
        self._service = service

    def release_idle(self) -> None:
        """See `SearchService.release_idle`."""
        self._service.release_idle()

    def handle(self, call: str, params: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        """One call as JSON.

        Raises:
            QmdError: What the call failed with.
            WireError: If the parameters do not fit, or the call is unknown.
        """
        answers = {"search": self._search, "describe": self._describe, "embed": self._embed}
        if call not in answers:
            raise WireError(f"unknown call '{call}'")
        return answers[call](params, asker)

    def _search(self, params: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        from qmd.inference import EngineSettings
        from qmd.records import Query
        from qmd.retrieval.options import SearchOptions

        response = self._service.search(
            from_wire(Query, params["query"]),
            from_wire(SearchOptions, params["options"]),
            from_wire(EngineSettings, params["settings"]),
            from_wire(frozenset[Role], params["roles"]),
            asker,
        )
        return _as_object(response)

    def _describe(self, params: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        from qmd.inference import EngineSettings

        return _as_object(self._service.describe_embedder(from_wire(EngineSettings, params["settings"])))

    def _embed(self, params: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        from qmd.inference import EngineSettings

        timeout_s = from_wire(float | None, params["timeout_s"])  # type: ignore[arg-type]
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        report = self._service.embed(
            from_wire(EngineSettings, params["settings"]),
            from_wire(list[str] | None, params["collections"]),  # type: ignore[arg-type]
            should_stop=lambda: asker.is_gone or (deadline is not None and time.monotonic() > deadline),
            on_progress=asker.progress,
        )
        return _as_object(report)


def _as_object(record: object) -> dict[str, Any]:
    answer = to_wire(record)
    assert isinstance(answer, dict)
    return answer
