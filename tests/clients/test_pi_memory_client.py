"""pi-memory: it probes with `status`, puts the query last, and reads the missing-embeddings warning from stderr."""

import json

import pytest

from tests.clients.conftest import Client, MakeClient


@pytest.fixture
def pi(make_client: MakeClient) -> Client:
    client = make_client(NO_COLOR="1")
    client.ok("collection", "add", str(client.notes), "--name", "pi-memory")
    client.ok("context", "add", "/daily", "Notes taken day by day", "-c", "pi-memory")
    client.ok("update")
    return client


def test_status_succeeds_before_anything_is_indexed(make_client: MakeClient) -> None:
    assert make_client().run("status").returncode == 0


def test_the_query_may_come_last(pi: Client) -> None:
    rows = json.loads(pi.ok("search", "--json", "-c", "pi-memory", "-n", "3", "sliding window"))
    assert {r.get("path") or r["file"] for r in rows} == {"deploy.md", "daily/2026-03-01.md"}
    assert all(r["title"] and r["snippet"] for r in rows)


def test_context_of_the_folder_reaches_the_result(pi: Client) -> None:
    rows = json.loads(pi.ok("search", "--json", "-c", "pi-memory", "-n", "5", "Ana sliding window"))
    contexts = {r["file"]: r.get("context") for r in rows}
    assert contexts["qmd://pi-memory/daily/2026-03-01.md"] == "Notes taken day by day"
    assert contexts["qmd://pi-memory/deploy.md"] is None


def test_missing_embeddings_are_said_on_stderr_in_the_known_words(pi: Client) -> None:
    done = pi.run("query", "--json", "-c", "pi-memory", "-n", "3", "sliding window", limit_s=3)
    assert done.returncode == 0
    assert "need embeddings" in done.stderr
    assert json.loads(done.stdout)


def test_after_embed_the_warning_is_gone(pi: Client) -> None:
    pi.ok("embed")
    assert "need embeddings" not in pi.run("query", "--json", "-c", "pi-memory", "sliding window").stderr
