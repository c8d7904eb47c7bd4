"""Who reads while others write: commands, MCP sessions and HTTP requests, each checked for what it must find."""

from __future__ import annotations

import json
import random
import time
import urllib.request
from http.client import HTTPException
from typing import Any

from tests.robustness.world import World, word_of

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "stress", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def read_by_command(world: World, dice: random.Random) -> None:
    """One command, checked for the document it must find."""
    number = dice.randrange(world.n_documents)
    path = f"lasting-{number}.md"
    daemon = dice.choice(("auto", "", "off"))
    kind = dice.choice(("search", "query", "vsearch", "get", "multi-get", "status", "ls"))
    words = {
        "search": ("search", word_of(number), "--json"),
        "query": ("query", f"the {word_of(number)} keeper", "--json"),
        "vsearch": ("vsearch", f"lighthouse number {number}", "--json"),
        "get": ("get", f"qmd://notes/{path}"),
        "multi-get": ("multi-get", f"notes/{path}", "--json"),
        "status": ("status", "--json"),
        "ls": ("ls", "notes"),
    }[kind]
    output = world.run(*words, QMD_DAEMON=daemon)
    if output is None:
        return
    world.count(f"command {kind}")
    expected = {"get": word_of(number), "status": "notes", "vsearch": "qmd://"}.get(kind, path)
    if expected not in output:
        world.fail(f"qmd {' '.join(words)} lacks '{expected}': {output[:200]}")


def read_by_mcp(world: World, dice: random.Random) -> None:
    """One MCP session of a few calls."""
    number = dice.randrange(world.n_documents)
    searches = [{"type": "lex", "query": word_of(number)}]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("query", {"searches": searches, "rerank": dice.random() < 0.3}),
        ("get", {"file": f"notes/lasting-{number}.md"}),
        ("status", {}),
    ]
    messages: list[dict[str, Any]] = [INITIALIZE, INITIALIZED]
    for position, (tool, arguments) in enumerate(calls, start=1):
        params = {"name": tool, "arguments": arguments}
        messages.append({"jsonrpc": "2.0", "id": position, "method": "tools/call", "params": params})
    child = world.start("mcp")
    # Stdin stays open until the answers are there: a session that is closed waits for them five seconds only.
    answers: dict[int, dict[str, Any]] = {}
    try:
        assert child.process.stdin is not None and child.process.stdout is not None
        child.process.stdin.write("".join(json.dumps(message) + "\n" for message in messages))
        child.process.stdin.flush()
        while len(answers) <= len(calls) and (line := child.process.stdout.readline()):
            answer = json.loads(line)
            if "id" in answer:
                answers[answer["id"]] = answer
    except (OSError, ValueError) as error:
        if not child.is_killed:
            world.fail(f"qmd mcp: {error}")
    if world.finish(child) is None:
        return
    world.count("mcp session")
    for position, (tool, _) in enumerate(calls, start=1):
        result = answers.get(position, {}).get("result", {})
        text = json.dumps(result)
        if result.get("isError") or (tool != "status" and word_of(number) not in text and f"-{number}.md" not in text):
            world.fail(f"mcp {tool} for {word_of(number)}: {json.dumps(answers.get(position))[:300]}")


def read_by_http(world: World, dice: random.Random) -> None:
    """One HTTP search; a failure counts unless the server was killed meanwhile."""
    number = dice.randrange(world.n_documents)
    port = dice.choice(world.ports)
    server = world.servers.get(port)
    if server is None:
        time.sleep(0.2)
        return
    body = {"searches": [{"type": dice.choice(("lex", "vec")), "query": word_of(number)}], "rerank": False}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/query", json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as answer:
            results = json.load(answer)["results"]
    except (OSError, ValueError, HTTPException) as error:
        if not server.is_killed and not world.stopping.is_set():
            world.fail(f"http {body}: {error}")
        return
    server.served += 1
    world.count("http request")
    found = [row["file"] for row in results]
    if body["searches"][0]["type"] == "lex" and f"qmd://notes/lasting-{number}.md" not in found:  # type: ignore[index]
        world.fail(f"http {body} found {found[:3]}")
