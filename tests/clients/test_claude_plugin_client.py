"""Claude Code plug-in: an MCP server over stdio, and a skill that runs the command line."""

import json
import re
from typing import Any
from urllib.parse import unquote

import pytest

from tests.clients.conftest import Client, Connect, MakeClient

HEADER = re.compile(r"^(qmd://\S.*?)  (#[0-9a-f]{6})$")


@pytest.fixture
def plugin(make_client: MakeClient) -> Client:
    client = make_client()
    client.ok("collection", "add", str(client.notes), "--name", "notes")
    client.ok("context", "add", "qmd://notes/daily", "Notes taken day by day")
    client.ok("embed")
    return client


def resources(result: dict[str, Any]) -> dict[str, str]:
    """Map the address of each document in a tool's result to its text."""
    text = "\n\n".join(item["text"] for item in result["content"] if item["type"] == "text")
    parts = re.split(r"(?m)^(qmd://\S+) #[0-9a-f]{6}\n\n", text)
    return {unquote(uri): text for uri, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_the_server_lists_the_four_tools(plugin: Client, connect: Connect) -> None:
    tools = connect(plugin).request("tools/list")["tools"]
    assert [tool["name"] for tool in tools][:4] == ["query", "get", "multi_get", "status"]
    assert {"query", "searches", "limit", "collections", "intent"} <= tools[0]["inputSchema"]["properties"].keys()
    assert all(len(tool["description"]) <= 2048 for tool in tools)


def test_typed_searches_give_rows_with_a_docid_that_get_takes(plugin: Client, connect: Connect) -> None:
    pipe = connect(plugin)
    searches = [{"type": "lex", "query": '"sliding window"'}, {"type": "vec", "query": "how are requests limited"}]
    result = pipe.call("query", searches=searches, intent="operations", collections=["notes"], limit=3)
    rows = result["structuredContent"]["results"]
    assert {row["file"].removeprefix("qmd://") for row in rows[:2]} == {"notes/deploy.md", "notes/daily/2026-03-01.md"}
    for row in rows:
        assert re.fullmatch(r"#[0-9a-f]{6}", row["docid"])
        assert {"file", "title", "score", "line", "snippet"} <= row.keys()
    first = rows[0]
    fetched = resources(pipe.call("get", file=f"{first['docid']}:{first['line']}:1"))
    assert list(fetched) == [f"qmd://{first['file'].removeprefix('qmd://')}"]
    assert f"{first['line']}: " in next(iter(fetched.values()))


def test_the_file_of_a_row_is_a_reference_for_get(plugin: Client, connect: Connect) -> None:
    pipe = connect(plugin)
    row = pipe.call("query", query="gardening tomatoes", limit=1)["structuredContent"]["results"][0]
    assert "tomatoes" in next(iter(resources(pipe.call("get", file=row["file"])).values()))


def test_several_documents_and_what_is_not_there(plugin: Client, connect: Connect) -> None:
    pipe = connect(plugin)
    assert list(resources(pipe.call("multi_get", pattern="{daily,sub}/*.md", maxLines=2))) == [
        "qmd://notes/daily/2026-03-01.md",
        "qmd://notes/sub/日记.md",
    ]
    missing = pipe.call("get", file="notes/none.md")
    assert missing["isError"]
    assert missing["content"][0]["text"].startswith("Document not found: notes/none.md")


def test_status_tells_what_is_indexed(plugin: Client, connect: Connect) -> None:
    status = connect(plugin).call("status")["structuredContent"]
    assert status["totalDocuments"] == 5
    assert status["hasVectorIndex"]
    assert [(one["name"], one["pattern"], one["documents"]) for one in status["collections"]] == [
        ("notes", "**/*.{md,markdown,mdx,mdown,mkd,Rmd,qmd}", 5)
    ]


def test_a_typed_query_with_its_explanation(plugin: Client) -> None:
    document = "intent: operations\nlex: sliding window\nvec: how are requests limited\nhyde: The limiter counts."
    rows = json.loads(plugin.ok("query", document, "--format", "json", "--explain"))
    assert {"ftsScores", "vectorScores", "rrf", "rerankScore", "blendedScore"} <= rows[0]["explain"].keys()
    assert {"docid", "score", "file", "line", "title", "snippet"} <= rows[0].keys()


def test_lines_of_a_docid(plugin: Client) -> None:
    docid = json.loads(plugin.ok("search", "usage based bills", "--format", "json"))[0]["docid"]
    header, rule, empty, *lines = plugin.ok("get", f"{docid}:3:3").splitlines()
    shown = HEADER.match(header)
    assert shown is not None
    assert shown.groups() == ("qmd://notes/pricing.md", docid)
    assert (rule, empty) == ("---", "")
    assert [line.split(": ")[0] for line in lines] == ["3", "4", "5"]
    assert plugin.ok("get", docid, "--from", "3", "-l", "3").splitlines()[3:] == lines


def test_several_docids_as_markdown(plugin: Client) -> None:
    rows = json.loads(plugin.ok("search", "sliding window", "--format", "json"))
    out = plugin.ok("multi-get", ",".join(row["docid"] for row in rows), "--format", "md")
    assert re.findall(r"^## (.+)$", out, re.MULTILINE) == [row["file"] for row in rows]


def test_paths_on_disk_and_plain_text(plugin: Client) -> None:
    row = json.loads(plugin.ok("search", "gardening", "--format", "json", "--full-path"))[0]
    assert (plugin.cwd / row["file"]).read_text().startswith("# Beta & co")
    out = plugin.ok("get", "qmd://notes/pricing.md", "--no-line-numbers", "--full-path")
    assert out.splitlines()[0] == "./notes/pricing.md"
    assert "# Pricing decision" in out.splitlines()


def test_several_collections(plugin: Client) -> None:
    plugin.ok("collection", "add", str(plugin.notes / "daily"), "--name", "days")
    rows = json.loads(plugin.ok("search", "sliding window", "-c", "notes", "-c", "days", "--format", "json"))
    assert {row["file"].split("/")[2] for row in rows} == {"notes", "days"}


def test_the_skill_is_printed_installed_and_found(plugin: Client) -> None:
    shown = plugin.ok("skill", "show")
    assert shown.startswith("QMD Skill\n\n---\nname: qmd\n")
    assert plugin.ok("--skill") == shown
    assert json.loads(plugin.ok("skills", "list", "--json"))["data"][0]["name"] == "qmd"
    assert json.loads(plugin.ok("skills", "get", "qmd", "--json"))["data"][0]["content"].startswith("---\nname: qmd")
    plugin.ok("skill", "install", "--yes")
    assert (plugin.cwd / ".claude" / "skills" / "qmd" / "SKILL.md").is_file()
    again = plugin.run("skill", "install")
    assert again.returncode == 1
    assert "Skill already exists" in again.stderr
