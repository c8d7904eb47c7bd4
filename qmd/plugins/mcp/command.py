# ruff: noqa: E501 - one option a line reads as a table
"""`qmd mcp` and `qmd serve`: serve editors, agents and people over stdio or HTTP."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec.structs import replace
from typer import Argument, Option

from qmd.cli.invocation import Invocation
from qmd.cli.options import Index
from qmd.cli.output import flush_result, out, say
from qmd.errors import UsageError
from qmd.plugins import hooks
from qmd.plugins.warm.lifecycle import (
    command_on,
    end_process,
    health_pid,
    reachable_host,
    remove_own_pid,
    running_server,
    server_files,
    server_of,
    server_url,
    start_server,
    stop_server,
    stop_warm_process,
    warm_process,
    write_pid,
)
from qmd.render.columns import shown
from qmd.render.drawing import Screen, draw

if TYPE_CHECKING:
    from qmd.config.paths import Locations
    from qmd.plugins.mcp.guard import AccessPolicy

DEFAULT_HOST = "localhost"
DEFAULT_PORT = 8181


def mcp(
    invocation: Invocation,
    action: Annotated[Literal["stop", "status"] | None, Argument(metavar="[stop|status]", help="'stop' ends the background server and the warm process, 'status' shows which run.")] = None,
    http: Annotated[bool, Option("--http", help="Serve HTTP instead of stdin and stdout.")] = False,
    host: Annotated[str | None, Option("--host", metavar="NAME", help="Address to listen on [default: QMD_HOST or localhost].")] = None,
    port: Annotated[int | None, Option("--port", metavar="N", min=0, max=65535, help="Port to listen on [default: 8181].")] = None,
    daemon: Annotated[bool, Option("--daemon", help="With --http: stay in the background.")] = False,
    watch: Annotated[bool, Option("--watch", help="With --http: also refresh the index as files change.")] = False,
    token_file: Annotated[Path | None, Option("--token-file", metavar="FILE", help="With --http: require the token in this file (or in QMD_TOKEN).")] = None,
    socket_only: Annotated[bool, Option("--socket-only", hidden=True)] = False,
    print_config: Annotated[str | None, Option("--print-config", metavar="CLIENT", help="The same as 'qmd install CLIENT --print'.")] = None,
    index: Index = None,
) -> int:  # fmt: skip
    """Serve this index to editors and agents."""
    locations = invocation.locate(index)
    if print_config is not None:
        return hooks.print_settings(invocation, print_config, index)
    if action is not None:
        return _manage(action, locations)
    if not http:
        of_http = {"--daemon": daemon, "--host": host, "--port": port, "--watch": watch, "--token-file": token_file}
        for option in [name for name, given in {**of_http, "--socket-only": socket_only}.items() if given]:
            raise UsageError(f"{option} needs --http", f"qmd mcp --http {option} …")
        from qmd.plugins.mcp.stdio import run_stdio

        run_stdio(invocation.serve(locations))
        return 0
    if socket_only:
        return _serve_commands(invocation, locations)
    policy = _access_policy(invocation.environ, host, token_file)
    chosen_port = DEFAULT_PORT if port is None else port
    if daemon:
        return _start(invocation, locations, policy, chosen_port, token_file, watches=watch)
    return _serve_http(invocation, locations, policy, chosen_port, watches=watch)


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
    locations = invocation.locate(index)
    policy = _access_policy(invocation.environ, host, token_file)

    def announce(page: str, what_next: str = "   Ctrl-C ends it") -> None:
        out(_address_line(page, what_next, invocation.screen))
        # The process goes on, and the reader of a pipe waits for the address.
        flush_result()
        if policy.token is not None:
            say("the browser asks for a password: the token, with any name")

    def announce_and_open(page: str) -> None:
        announce(page)
        # A browser that runs in the terminal would block the server.
        threading.Thread(target=_open, args=(page,), daemon=True).start()

    url = server_url(reachable_host(policy.bind_host), port)
    pid = health_pid(url, policy.token) if port else None
    if pid is None:
        return _serve_http(
            invocation, locations, policy, port, watches=watch, announce=announce_and_open if opens else announce
        )
    if pid != server_of(locations):
        raise UsageError(f"port {port} is taken by another qmd server (process {pid})", f"qmd serve --port {port + 1}")
    say(f"process {pid} already serves this index")
    announce(f"{url}/", "")
    if opens:
        _open(f"{url}/")
    return 0


def _address_line(page: str, what_next: str, screen: Screen | None) -> str:
    if screen is None:
        return f"{page}\n"
    line = shown("Search at ").append_text(shown(page, "label", page)).append_text(shown(what_next, "faint"))
    return draw(screen, line)


def _open(page: str) -> None:
    import webbrowser

    if not webbrowser.open(page):
        say("cannot open a browser here; open the address yourself")


def _manage(action: str, locations: Locations) -> int:
    """Stop the processes that serve this index, or print their status."""
    from qmd.plugins.warm.record import read_record, warm_files

    files, record = server_files(locations.cache, locations.stem), read_record(warm_files(locations))
    if action == "status":
        pids = {"MCP server": running_server(files), "Warm process": warm_process(record.pid) if record else None}
        out("".join(f"{what}: {f'running (PID {pid})' if pid else 'not running'}\n" for what, pid in pids.items()))
        return 0
    warm = stop_warm_process(record.pid) if record is not None else None
    server = stop_server(files) if warm is None or files.pid.exists() else None
    out("".join(f"{line}\n" for line in (server, warm) if line))
    return 0


def _serve_http(
    invocation: Invocation,
    locations: Locations,
    policy: AccessPolicy,
    port: int,
    *,
    watches: bool,
    announce: Callable[[str], None] | None = None,
) -> int:
    """Serve clients in any folder until a signal ends this process; `announce` gets the address, else stderr."""
    from qmd.plugins.mcp.http_server import run_server

    files = server_files(locations.cache, locations.stem)
    index = invocation.serve(replace(locations, cwd=Path("/")))
    if running_server(files) is None:
        with contextlib.suppress(OSError):
            write_pid(files)
    # The server itself computes the vectors.
    watching = hooks.watch_in_background(index) if watches else contextlib.nullcontext()
    try:
        with watching:
            run_server(index, locations, invocation.environ, policy, port, announce)
    finally:
        remove_own_pid(files)
    end_process()


def _serve_commands(invocation: Invocation, locations: Locations) -> int:
    """Run as the warm process that a command started: without port and pid file, until it is idle."""
    from qmd.plugins.mcp.http_server import run_server

    run_server(invocation.serve(replace(locations, cwd=Path("/"))), locations, invocation.environ)
    end_process()


def _start(
    invocation: Invocation,
    locations: Locations,
    policy: AccessPolicy,
    port: int,
    token_file: Path | None,
    *,
    watches: bool,
) -> int:
    if port == 0:
        raise UsageError("--daemon needs a fixed port", "qmd mcp --http --daemon --port 8181")
    arguments, environ = command_on(locations, invocation.environ, ("mcp", "--http"))
    arguments += ["--host", policy.bind_host, "--port", str(port)]
    if watches:
        arguments.append("--watch")
    if token_file is not None:
        arguments += ["--token-file", str(token_file.absolute())]
    url = server_url(reachable_host(policy.bind_host), port)
    files = server_files(locations.cache, locations.stem)
    pid = start_server(files, arguments, url, environ, policy.token)
    out(f"Started on {url}/mcp (PID {pid})\nLogs: {files.log}\n")
    return 0


def _access_policy(environ: Mapping[str, str], host: str | None, token_file: Path | None) -> AccessPolicy:
    """Return the access policy of the server.

    Raises:
        UsageError: An address beyond this machine, or an open origin list, without a token.
    """
    from qmd.plugins.mcp.guard import AccessPolicy, is_loopback, split_list

    host = host or environ.get("QMD_HOST") or DEFAULT_HOST
    bind_host = "0.0.0.0" if host == "*" else host.strip("[]")
    token = _token(environ, token_file)
    origins = split_list(environ.get("QMD_ALLOWED_ORIGINS"))
    if token is None and not is_loopback(bind_host):
        raise UsageError(
            f"listening on '{host}' lets other machines connect, which needs a token",
            "set QMD_TOKEN, or give --token-file FILE; clients send it as 'Authorization: Bearer TOKEN'",
        )
    if "*" in origins and token is None:
        raise UsageError("QMD_ALLOWED_ORIGINS '*' lets every web page connect, which needs a token", "set QMD_TOKEN")
    return AccessPolicy(bind_host, split_list(environ.get("QMD_ALLOWED_HOSTS")), origins, token)


def _token(environ: Mapping[str, str], token_file: Path | None) -> str | None:
    if token_file is None:
        return environ.get("QMD_TOKEN", "").strip() or None
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"cannot read the token file '{token_file}': {exc}") from exc
    if not token:
        raise UsageError(f"the token file '{token_file}' is empty", f"openssl rand -hex 32 > {os.fspath(token_file)}")
    return token
