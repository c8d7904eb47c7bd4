"""Logseq's command line: it mirrors a graph into a folder, and reads block ids from search results."""

import json
import re
from typing import Any

import pytest

from tests.clients.conftest import Client, MakeClient

BLOCK = re.compile(r"<!--\s*id:\s*(\S+?)\s*-->")


@pytest.fixture
def graph(make_client: MakeClient) -> Client:
    client = make_client()
    pages = client.notes.parent / "mirror"
    pages.mkdir()
    for name, blocks in {
        "limits": ["The rate limiter counts requests.", "Each client has a sliding window."],
        "garden": ["Tomatoes need sun.", "Basil needs water."],
    }.items():
        lines = [f"- {text} <!-- id: {name}-{number} -->" for number, text in enumerate(blocks)]
        (pages / f"{name}.md").write_text(f"# {name.title()}\n\n" + "\n".join(lines) + "\n")
    if client.run("collection", "show", "logseq-graph").returncode != 0:
        client.ok("collection", "add", str(pages), "--name", "logseq-graph")
    client.ok("update")
    client.ok("embed")
    return client


def block_ids(rows: list[dict[str, Any]]) -> list[str]:
    """Return the ids that the client looks up in its own database: in the snippet, or else in the body."""
    return [name for row in rows for name in BLOCK.findall(row.get("snippet") or row.get("body") or "")]


def test_block_ids_survive_in_snippets(graph: Client) -> None:
    rows = json.loads(graph.ok("query", "sliding window", "--json", "-c", "logseq-graph", "-n", "1"))
    assert "limits-1" in block_ids(rows)


def test_block_ids_survive_in_bodies(graph: Client) -> None:
    rows = json.loads(graph.ok("query", "basil water", "--json", "--full", "-n", "1"))
    assert block_ids(rows) == ["garden-0", "garden-1"]


def test_standard_output_is_json_and_nothing_else(graph: Client) -> None:
    done = graph.run("query", "tomatoes", "--json")
    assert done.stdout.startswith("[\n")
    assert done.stdout.endswith("]\n")
    json.loads(done.stdout)
