
"""`qmd serve`: search on a local page in the browser."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import flush_result, out, say
from qmd.errors import UsageError
from qmd.plugins.mcp.command import DEFAULT_HOST, DEFAULT_PORT, access_policy, serve_http
from qmd.render.drawing import Screen, draw


def serve(
    invocation: Invocation,
    port: Annotated[int, Option("--port", metavar="N", min=0, max=65535, help="Port to listen on; 0 for any that is free.")] = DEFAULT_PORT,
    host: Annotated[str | None, Option("--host", metavar="NAME", help="Address to listen on [default: QMD_HOST or localhost].")] = None,
    opens: Annotated[bool, Option("--open", help="Open the page in the browser.")] = False,
    watch: Annotated[bool, Option("--watch", help="Also refresh the index as files change.")] = False,
    token_file: Annotated[Path | None, Option("--token-file", metavar="FILE", help="Ask for the token in this file (or QMD_TOKEN).")] = None,
    index: Index = None,
) -> int:  # fmt: skip
    """Search on a page in the browser; nothing leaves this machine."""
    from qmd.plugins.mcp.lifecycle import health_pid, reachable_host, running_server, server_files, server_url

    locations = invocation.locate(index)
    policy = access_policy(invocation.environ, host or invocation.environ.get("QMD_HOST") or DEFAULT_HOST, token_file)

    def announce(page: str, what_next: str = "   Ctrl-C ends it") -> None:
        out(_shown(page, what_next, invocation.screen))
        # The process stays, and whoever reads it through a pipe waits for the address.
        flush_result()
        if policy.token is not None:
            say("the browser asks for a password: the token, with any name")

    def announce_and_open(page: str) -> None:
        announce(page)
        # A browser of the terminal would keep the server from answering it.
        threading.Thread(target=_open, args=(page,), daemon=True).start()

    url = server_url(reachable_host(policy.bind_host), port)
    pid = health_pid(url, policy.token) if port else None
    if pid is None:
        return serve_http(
            invocation, locations, policy, port, watches=watch, announce=announce_and_open if opens else announce
        )
    if pid != running_server(server_files(locations.cache, locations.stem)):
        raise UsageError(f"port {port} is taken by another qmd server (process {pid})", f"qmd serve --port {port + 1}")
    say(f"this index is served already (process {pid})")
    announce(f"{url}/", "")
    if opens:
        _open(f"{url}/")
    return 0


def _shown(page: str, what_next: str, screen: Screen | None) -> str:
    if screen is None:
        return f"{page}\n"
    from rich.style import Style
    from rich.text import Text

    return draw(screen, Text.assemble("Search at ", (page, Style(bold=True, link=page)), (what_next, "faint")))


def _open(page: str) -> None:
    if not webbrowser.open(page):
        say("no browser can be opened here; open the address yourself")
