"""Requests as Claude Desktop, Claude Code, Cursor, Codex, Gemini CLI and opencode send them.

`requests.json` has their shapes, from reports at these projects: plain forms with those that mean the same, and
nonsense, for the notes of `tests.plugins.serving`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from qmd.app.index import Index
from qmd.errors import UsageError
from qmd.plugins.mcp.arguments import ALIASES, check_arguments, input_schema
from qmd.plugins.mcp.mcp_server import build_server
from qmd.plugins.mcp.tools import ADD, LEGACY_TOOLS, TOOLS, Values
from qmd.retrieval.trace import Listener
from tests.plugins.serving import Loader, make_index
from tests.program import write_notes

REQUESTS = json.loads(Path(__file__).with_name("requests.json").read_text("utf-8"))
BY_NAME = {tool.name: tool for tool in (*TOOLS, ADD, *LEGACY_TOOLS)}


def checked(tool: str, given: dict[str, Any]) -> Values:
    return check_arguments(BY_NAME[tool].arguments, given)


def sent() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield tool, arguments as sent, and their plain form."""
    for group in REQUESTS["valid"]:
        yield from ((group["tool"], given, group["plain"]) for given in group["sent"])


def test_what_clients_send_means_what_its_plain_form_means() -> None:
    assert [given for tool, given, plain in sent() if checked(tool, given) != checked(tool, plain)] == []


@pytest.mark.anyio
async def test_the_server_answers_what_clients_send_and_refuses_nonsense(index: Index) -> None:
    async with Client(build_server(index), mode="legacy") as client:
        for tool, given, _ in sent():
            assert tool == "add" or not (await client.call_tool(tool, given)).is_error, given
        for tool, every in REQUESTS["nonsense"].items():
            for given in every:
                assert (await client.call_tool(tool, given)).is_error, given


def test_a_tool_that_writes_refuses_nonsense_before_it_writes() -> None:
    for given in REQUESTS["nonsense"]["add"]:
        with pytest.raises(UsageError):
            checked("add", given)


@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5_000, "1" * 4_000, '{"a":' * 4_000, '"\ud800"', "\0"])
@pytest.mark.parametrize("name", ["limit", "minScore", "rerank", "searches"])
def test_a_hostile_string_is_a_short_error(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked("query", {"query": "x", name: value})
    assert caught.value.message.startswith(f"{name}: expected") and len(caught.value.message) < 120


def test_no_other_name_is_in_a_schema_or_means_two_arguments_of_a_tool() -> None:
    for tool in BY_NAME.values():
        own = [one.name for one in tool.arguments]
        others = [other for name in own for other in ALIASES.get(name, "").split()]
        assert len(others) == len(set(others)), tool.name
        assert [*input_schema(tool.arguments)["properties"]] == own


def test_a_list_of_names_reads_these_notes_and_no_others(tmp_path: Path, loader: Loader) -> None:
    names = ("a, b", "a", "b", "Plan", "Plan A", "A")
    folder = write_notes(tmp_path / "docs", {f"{name}.md": f"<{name}>\n" for name in names})
    with make_index(tmp_path / "index.sqlite", folder, loader) as index:
        for files, found in (
            (["docs/a, b.md", "b.md"], ["a, b", "b"]),
            (["docs/a, b"], ["a, b"]),
            (["Plan", "docs/A.md"], ["Plan", "A"]),
            (["a, c"], []),
        ):
            answer = BY_NAME["multi_get"].answer(index, checked("multi_get", {"files": files}), Listener())
            assert [one.split(">")[0] for one in "".join(answer.parts).split("<")[1:]] == found
