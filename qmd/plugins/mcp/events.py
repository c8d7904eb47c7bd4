"""Responses of `POST /mcp` to clients of 2025: server-sent events, or JSON if the client accepts nothing else or the
response is too large for an event."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGE_BYTES = 256 * 1024
"""Larger responses are sent as JSON: some clients end the session at an event of 1 MiB."""

_EVENTS, _JSON = "text/event-stream", "application/json"


class JsonFallback:
    """Endpoint that sends events as JSON to clients that need it; JSON responses pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        accepted = Headers(scope=scope).get("accept", "")
        if _JSON in accepted or "*/*" in accepted:
            send = _Answer(send, takes_events=_EVENTS in accepted)
            headers = MutableHeaders(raw=list(scope["headers"]))
            headers["accept"] = f"{_JSON}, {_EVENTS}"
            scope = {**scope, "headers": headers.raw}
        await self._app(scope, receive, send)


class _Answer:
    """Sender that delays the head of a response until its form is decided.

    Args:
        send: Sends to the client.
        takes_events: Whether small responses may be sent as events.
    """

    def __init__(self, send: Send, *, takes_events: bool) -> None:
        self._send = send
        self._takes_events = takes_events
        self._head: Message | None = None
        self._events = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if Headers(raw=message["headers"]).get("content-type", "").startswith(_EVENTS):
                self._head = message
                return
        elif self._head is not None:
            self._events += message.get("body", b"")
            if self._takes_events and len(self._events) <= LARGE_BYTES:
                head, self._head = self._head, None
                await self._send(head)
                message = {**message, "body": self._events}
            elif message.get("more_body", False):
                return
            else:
                await self._send_json(self._head)
                return
        await self._send(message)

    async def _send_json(self, head: Message) -> None:
        """Send the last event, which is the response; the earlier ones report progress."""
        data = [line for line in self._events.splitlines() if line.startswith(b"data: {")]
        body = data[-1].removeprefix(b"data: ") if data else b""
        headers = MutableHeaders(raw=list(head["headers"]))
        headers["content-type"], headers["content-length"] = _JSON, str(len(body))
        await self._send({**head, "headers": headers.raw})
        await self._send({"type": "http.response.body", "body": body})
