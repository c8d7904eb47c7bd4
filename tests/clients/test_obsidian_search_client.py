"""obsidian-qmd-search: `qmd mcp` through the JavaScript SDK, and the command line for set-up and refresh."""

import re

import pytest

from tests.clients.conftest import Client, Connect, MakeClient


@pytest.fixture
def vault(make_client: MakeClient) -> Client:
    return make_client()


def test_set_up_refresh_and_search(vault: Client, connect: Connect) -> None:
    # The set-up dialogue: is the vault's collection there? If not, add it; then bring it up to date.
    assert vault.run("collection", "show", "my vault").returncode != 0
    vault.ok("collection", "add", str(vault.notes), "--name", "my vault")
    shown = vault.ok("collection", "show", "my vault")
    assert re.findall(r"^\s*Path:\s+(.+)$", shown, re.MULTILINE) == [str(vault.notes)]
    vault.ok("update")
    pipe = connect(vault)
    assert pipe.call("status")["structuredContent"]["needsEmbedding"] == 5
    words_only = pipe.call("query", searches=[{"type": "lex", "query": "tomatoes"}], collections=["my vault"], limit=20)
    assert [row["title"] for row in words_only["structuredContent"]["results"]] == ["Beta & co"]
    vault.ok("embed")
    assert pipe.call("status")["structuredContent"]["needsEmbedding"] == 0
    searches = [{"type": "lex", "query": "prices"}, {"type": "vec", "query": "what do customers pay"}]
    rows = pipe.call("query", searches=searches, collections=["my vault"], limit=20)["structuredContent"]["results"]
    assert rows[0]["title"] == "Pricing decision"
    assert rows[0]["file"].removeprefix("qmd://") == "my vault/pricing.md"


def test_nothing_found_is_an_empty_list_and_no_error(vault: Client, connect: Connect) -> None:
    vault.ok("collection", "add", str(vault.notes), "--name", "vault")
    result = connect(vault).call("query", searches=[{"type": "lex", "query": "zzyzxqq"}], collections=["vault"])
    assert result["structuredContent"]["results"] == []
    assert not result.get("isError")


def test_a_failing_command_explains_itself_on_stderr(vault: Client) -> None:
    done = vault.run("collection", "add", str(vault.notes / "missing"), "--name", "vault")
    assert done.returncode != 0
    assert "does not exist" in done.stderr
    assert done.stdout == ""


def test_a_change_is_seen_by_the_running_server_after_update(vault: Client, connect: Connect) -> None:
    vault.ok("collection", "add", str(vault.notes), "--name", "vault")
    pipe = connect(vault)
    search = {"searches": [{"type": "lex", "query": "rhubarb"}], "collections": ["vault"]}
    assert pipe.call("query", **search)["structuredContent"]["results"] == []
    (vault.notes / "new.md").write_text("# Rhubarb\n\nSour, red.\n")
    vault.ok("update")
    assert [row["title"] for row in pipe.call("query", **search)["structuredContent"]["results"]] == ["Rhubarb"]
