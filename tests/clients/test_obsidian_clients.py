"""obsidian-qmd and obsidian-qmd-search: regular expressions over text output, multi-line query documents."""

import json
import re

import pytest

from tests.clients.conftest import Client, MakeClient

COLLECTION_LINE = re.compile(r"^(.+?)\s+\(qmd://.+/\)$", re.MULTILINE)


@pytest.fixture
def vault(make_client: MakeClient) -> Client:
    client = make_client()
    client.ok("collection", "add", str(client.notes), "--name", "my.vault_1")
    client.ok("update")
    client.ok("embed")
    return client


def test_collection_list_matches_the_plugins_expression(vault: Client) -> None:
    assert COLLECTION_LINE.findall(vault.ok("collection", "list")) == ["my.vault_1"]


def test_collection_show_has_its_labels(vault: Client) -> None:
    lines = vault.ok("collection", "show", "my.vault_1").splitlines()
    labels = dict(line.strip().split(":", 1) for line in lines if ":" in line)
    assert labels["Collection"].strip() == "my.vault_1"
    assert labels["Path"].strip().endswith("notes")
    assert labels["Pattern"].strip() == "**/*.{md,markdown,mdx,mdown,mkd,Rmd,qmd}"
    assert labels["Include"].strip().startswith("yes")


def test_a_query_document_of_several_lines_is_accepted(vault: Client) -> None:
    document = "intent: how money is asked for\nlex: per-seat pricing\nvec: what do customers pay"
    rows = json.loads(vault.ok("query", document, "-c", "my.vault_1", "--json", "-n", "3"))
    assert rows[0]["file"] == "qmd://my.vault_1/pricing.md"
    assert re.match(r"^@@ -\d+,\d+ @@ \(\d+ before, \d+ after\)\n", rows[0]["snippet"])


def test_negation_in_a_vec_line_is_refused_in_the_known_words(vault: Client) -> None:
    done = vault.run("query", "vec: pricing -seat", "-c", "my.vault_1", "--json")
    assert done.returncode != 0
    assert "-term" in done.stderr
    assert "not supported in vec/hyde" in done.stderr


def test_html_comments_survive_in_bodies(vault: Client) -> None:
    rows = json.loads(vault.ok("query", "roll back image tag", "--json", "--full"))
    assert any("<!-- id: 6512f -->" in r["body"] for r in rows)


def test_help_is_an_availability_probe(vault: Client) -> None:
    assert "query" in vault.ok("--help")
