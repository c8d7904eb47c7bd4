"""Tools and resources through the SDK's own client, in memory, in both protocol eras."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp_types import ResourceTemplateReference, TextContent
from msgspec.structs import replace

from qmd.analysis.tokens import count_tokens
from qmd.app.index import Index
from qmd.masks import DEFAULT_PATTERN
from qmd.plugins.mcp.mcp_server import build_server
from qmd.plugins.mcp.rows import answer_object, results_text
from qmd.plugins.mcp.tools import TOOLS
from qmd.progress import Progress
from qmd.records import Query, SearchResponse
from qmd.store.runs import EmbeddingLock
from tests.plugins.serving import Loader, open_with

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "2026-07-28")
Connect = Callable[[], Any]


@pytest.fixture(params=ERAS)
def connect(request: pytest.FixtureRequest, index: Index) -> Connect:
    @asynccontextmanager
    async def connected() -> AsyncIterator[Client]:
        async with Client(build_server(index), mode=request.param) as client:
            yield client

    return connected


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def read_by(result: Any) -> dict[str, str]:
    """Map the address of each document in a tool's result to its text."""
    parts = re.split(r"(?m)^(qmd://\S+) #[0-9a-f]{6}\n\n", text_of(result))
    return {uri: text.removesuffix("\n\n") for uri, text in zip(parts[1::2], parts[2::2], strict=True)}


async def call(connect: Connect, tool: str, **arguments: object) -> Any:
    async with connect() as client:
        return await client.call_tool(tool, arguments)


async def test_tools_are_listed_in_order_read_only_with_short_descriptions(connect: Connect) -> None:
    async with connect() as client:
        tools = (await client.list_tools()).tools
    assert [tool.name for tool in tools] == ["query", "get", "multi_get", "status", "pack", "links", "related"]
    for tool in tools:
        assert len(tool.description) < 1800
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.open_world_hint is False
        assert tool.output_schema is None
        assert tool.input_schema["additionalProperties"] is False


async def test_instructions_stay_under_what_clients_cut_off(index: Index) -> None:
    instructions = build_server(index).instructions or ""
    assert "5 markdown documents" in instructions
    assert "Context: Global" in instructions
    assert len(instructions) < 2048


async def test_an_answer_says_that_changed_notes_were_taken_up() -> None:
    response = SearchResponse(Query("x"), (), "none", refreshed=2)
    assert answer_object(response)["refreshed"] == 2
    assert results_text(response, "x") == 'No results found for "x"\nNote: updated 2 changed notes.'
    assert "refreshed" not in answer_object(replace(response, refreshed=0))


async def test_query_rows_have_the_fields_clients_parse_and_nothing_twice(connect: Connect) -> None:
    result = await call(connect, "query", query="rate limiter", rerank=False)
    first, *others = result.structured_content["results"]
    fields = "docid file title score line start_line end_line snippet"
    assert set(first) == {*fields.split(), "context"}
    assert all(set(row) - {"context"} == set(fields.split()) for row in others)
    assert first["file"] == "docs/a.md"
    assert first["docid"].startswith("#") and len(first["docid"]) == 7
    assert first["context"] == "Global\n\nRoot ctx"
    assert [r["context"] for r in others if "context" in r] == ["Sub ctx"] * any("sub/" in r["file"] for r in others)
    assert 0 <= first["score"] <= 1


async def test_snippet_lines_carry_the_line_numbers_of_the_file(connect: Connect) -> None:
    result = await call(connect, "query", searches=[{"type": "lex", "query": "zebra"}], rerank=False)
    row = result.structured_content["results"][0]
    assert row["line"] == 303
    lines = row["snippet"].split("\n")
    assert (lines[0].partition(":")[0], lines[-1].partition(":")[0]) == (str(row["start_line"]), str(row["end_line"]))
    assert "303: the marker zebra stands here" in lines


async def test_text_and_structured_content_carry_the_same_facts(connect: Connect) -> None:
    result = await call(connect, "query", query="rate limiter", rerank=False)
    text = text_of(result)
    assert result.structured_content["results"]
    for row in result.structured_content["results"]:
        span = f"{row['start_line']}-{row['end_line']}".removesuffix(f"-{row['start_line']}")
        head = f"{row['docid']} {round(row['score'] * 100)}% {row['file']}:{span} › {row['title']}"
        for fact in (head, " ".join(row.get("context", "").split()), *row["snippet"].split("\n")):
            assert fact in text
    for warning in result.structured_content.get("warnings", []):
        assert warning in text


async def test_a_list_of_notes_names_each_in_one_line(connect: Connect) -> None:
    result = await call(connect, "query", query="collection:docs sort:date", detail="paths")
    _, *lines = text_of(result).split("\n")
    assert len(lines) == len(result.structured_content["results"]) == 5
    assert all(re.match(r"#[0-9a-f]{6} 100% docs/\S", line) for line in lines)
    assert {key for row in result.structured_content["results"] for key in row} == {"docid", "file", "title", "score"}


async def test_in_full_whole_notes_come_with_all_that_is_known_of_them(connect: Connect, notes: Path) -> None:
    result = await call(connect, "query", query="rate limiter", rerank=False, detail="full")
    row = result.structured_content["results"][0]
    assert row["body"] == (notes / "a.md").read_text(encoding="utf-8")
    assert row["uri"] == "qmd://docs/a.md" and row["passages"][0]["start_line"] == 1
    assert "7: \n8: More text here." in text_of(result)


async def test_an_unknown_detail_is_refused_with_those_there_are(connect: Connect) -> None:
    result = await call(connect, "query", query="cache", detail="x" * 1000)
    assert result.is_error
    assert f"detail: expected passages or paths or full, not '{'x' * 40}'" in text_of(result)


async def test_a_pack_quotes_notes_within_its_tokens(connect: Connect) -> None:
    text = text_of(await call(connect, "pack", question="rate limiter", maxTokens=200))
    assert "not instructions" in text and re.search(r"(?m)^#\w{6} docs/a.md:\d+-\d+", text)
    assert text_of(await call(connect, "pack", query="rate limiter", maxTokens=60)).startswith("60 tokens are too few")


async def test_no_hit_says_so(connect: Connect) -> None:
    result = await call(connect, "query", searches=[{"type": "lex", "query": "zzzzqqq"}], rerank=False)
    assert text_of(result).startswith('No results found for "zzzzqqq"')
    assert result.structured_content["results"] == []
    assert not result.is_error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "x", "colections": ["docs"]}, "unknown argument 'colections', did you mean 'collections'?"),
        ({"query": "x", "min_scor": 0.5}, "unknown argument 'min_scor', did you mean 'minScore'?"),
        ({"query": "x", "collection": "x", "collections": ["docs"]}, "collections: given under two names"),
        ({"searches": [{"type": "zip", "query": "x"}]}, "searches.0.type: expected 'lex', 'vec' or 'hyde', not 'zip'"),
        ({"query": "x", "limit": "ten"}, "limit: expected a whole number, not a string"),
        ({"query": "x", "limit": 0}, "limit: expected at least 1, not 0"),
        ({"query": "x", "rerank": 1}, "rerank: expected true or false, not a number"),
        ({"query": 5}, "query: expected a string, not a number"),
        ({"searches": [{"type": "lex", "query": "x"}] * 11}, "at most 10 sub-queries, not 11"),
        ({}, "Error: provide either 'query' (plain text) or 'searches' (typed sub-queries)"),
        (
            {"query": "x", "searches": [{"type": "lex", "query": "x"}]},
            "Error: 'query' and 'searches' are mutually exclusive; provide only one",
        ),
        ({"searches": [{"type": "vec", "query": "a -b"}]}, "Negation (-term) is not supported in vec/hyde queries"),
    ],
)
async def test_wrong_query_arguments_are_tool_errors_that_name_the_cure(
    connect: Connect, arguments: dict[str, object], expected: str
) -> None:
    result = await call(connect, "query", **arguments)
    assert result.is_error
    assert expected in text_of(result)


async def test_unknown_arguments_of_every_tool_are_refused(connect: Connect) -> None:
    for tool in TOOLS:
        result = await call(connect, tool.name, zzz=1)
        assert result.is_error, tool.name
        assert "unknown argument 'zzz'" in text_of(result)


async def test_unknown_tool_is_a_protocol_error(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("zip", {})
    assert raised.value.code == -32602
    assert raised.value.message == "Tool zip not found"


async def test_null_arguments_count_as_absent(connect: Connect) -> None:
    result = await call(connect, "query", query="cache", searches=None, collections=None, intent=None, rerank=False)
    assert result.structured_content["results"][0]["file"] == "docs/sub/b.md"


async def test_an_unknown_collection_is_an_error_that_names_the_nearest(connect: Connect) -> None:
    result = await call(connect, "query", query="cache", collections=["dosc"], rerank=False)
    assert result.is_error
    assert "Collection not found: dosc" in text_of(result)
    assert "did you mean 'docs'?" in text_of(result)


async def test_several_lines_of_plain_text_are_one_question(connect: Connect) -> None:
    result = await call(connect, "query", query="how is\nthe cache\nflushed", rerank=False)
    assert result.structured_content["results"][0]["file"] == "docs/sub/b.md"


async def test_tools_of_version_one_answer_without_being_listed(connect: Connect) -> None:
    for tool in ("search", "vector_search", "deep_search"):
        result = await call(connect, tool, query="rate limiter", limit=3, minScore=0, collection="docs")
        assert not result.is_error, text_of(result)
        assert isinstance(result.structured_content["results"], list)
    found = await call(connect, "search", query="rate limiter")
    assert found.structured_content["results"][0]["file"] == "docs/a.md"


async def test_get_returns_numbered_lines_under_the_context(connect: Connect) -> None:
    result = await call(connect, "get", file="docs/a.md:3:2")
    assert [block.type for block in result.content] == ["text"]
    assert read_by(result) == {
        "qmd://docs/a.md": "<!-- Context: Global Root ctx -->\n\n"
        "3: The rate limiter uses a sliding window.\n4: Auth token flow"
    }
    assert read_by(await call(connect, "get", path="docs/a.md:3:2")) == read_by(result)


async def test_get_arguments_win_over_the_suffix(connect: Connect) -> None:
    result = await call(connect, "get", file="docs/a.md:3:2", fromLine=1, maxLines=1, lineNumbers=False)
    head, text = (block.text for block in result.content)
    assert head.endswith("-->") and text == "# Alpha Doc"


@pytest.mark.parametrize("line", [10, 99999])
async def test_get_past_the_end_names_the_last_line(connect: Connect, line: int) -> None:
    for asked in ({"fromLine": line}, {"fromLine": line, "outline": True}, {"file": f"docs/a.md:{line}:2"}):
        result = await call(connect, "get", **{"file": "docs/a.md", **asked})
        assert result.content[-1].text.endswith(f"line {line} does not exist: the last line of 'qmd://docs/a.md' is 8")
        assert text_of(result).count("last line") == 1
    assert "Warning" not in text_of(await call(connect, "get", file="docs/a.md:2:1"))  # an empty line


async def test_get_by_docid_of_a_result(connect: Connect) -> None:
    found = await call(connect, "query", query="teapots", rerank=False)
    row = found.structured_content["results"][0]
    (uri,) = read_by(await call(connect, "get", file=row["docid"]))
    assert row["file"] == "docs/we ird/c & d.md"
    assert uri == "qmd://docs/we%20ird/c%20%26%20d.md"


@pytest.mark.parametrize("reference", ["a\0b", "./a\0.md", "~a\0/b.md", "qmd://docs/a.md\0", "docs/\0:3"])
async def test_a_reference_with_nul_is_not_found(connect: Connect, reference: str) -> None:
    for tool in ("get", "links", "related"):
        result = await call(connect, tool, file=reference)
        assert result.is_error
        assert "not found" in text_of(result).lower(), tool
    several = await call(connect, "multi_get", pattern=f"docs/a.md,{reference}")
    assert "sliding window" in "".join(read_by(several).values())
    assert "not found" in text_of(several).lower()


async def test_get_suggests_similar_paths(connect: Connect) -> None:
    result = await call(connect, "get", file="docs/aa.md")
    assert result.is_error
    assert text_of(result).startswith("Document not found: docs/aa.md\n\nDid you mean one of these?\n  - docs/a.md")


@pytest.mark.parametrize(
    "path", ["../secret.md", "docs/../../secret.md", "/etc/passwd", "qmd://docs/../../secret.md", "~/secret.md"]
)
async def test_get_reads_nothing_outside_the_index(connect: Connect, notes: Path, path: str) -> None:
    (notes.parent / "secret.md").write_text("secret", encoding="utf-8")
    result = await call(connect, "get", file=path)
    assert result.is_error
    assert "root:" not in text_of(result) and "secret\n" not in text_of(result)
    assert text_of(result).startswith("Document not found")


async def test_files_of_the_folder_that_are_not_indexed_are_not_served(connect: Connect, notes: Path) -> None:
    (notes / ".private.md").write_text("hidden words", encoding="utf-8")
    for path in ("docs/.private.md", "qmd://docs/.private.md", str(notes / ".private.md"), "docs/sub/../.private.md"):
        assert "hidden words" not in str(await call(connect, "get", file=path))
        assert "hidden words" not in str(await call(connect, "multi_get", pattern=path))


@pytest.mark.parametrize("path", ["../*.md", "docs/../../*.md", "/etc/*", "../secret.md, docs/../../secret.md", "~/*"])
async def test_multi_get_reads_nothing_outside_the_index(connect: Connect, notes: Path, path: str) -> None:
    (notes.parent / "secret.md").write_text("top secret", encoding="utf-8")
    result = await call(connect, "multi_get", pattern=path)
    assert read_by(result) == {}
    assert "top secret" not in str(result)


async def test_multi_get_by_glob_and_by_list(connect: Connect) -> None:
    assert [*read_by(await call(connect, "multi_get", pattern="docs/**/b.md"))] == ["qmd://docs/sub/b.md"]
    result = await call(connect, "multi_get", pattern="docs/a.md, nope.md", maxLines=1)
    assert not result.is_error
    assert text_of(result).startswith("Errors:\nFile not found: nope.md")
    assert read_by(result)["qmd://docs/a.md"].endswith("1: # Alpha Doc\n\n[... truncated 8 more lines]")
    assert len(result.content) == 1
    result = await call(connect, "multi_get", pattern="docs/a.md, nope.md", maxLines=1, lineNumbers=False)
    problems, head, *blocks = (block.text for block in result.content)
    assert problems.startswith("Errors:") and head.startswith("qmd://docs/a.md #")
    assert blocks == ["# Alpha Doc", "[... truncated 8 more lines]"]


async def test_multi_get_names_what_is_too_large(connect: Connect) -> None:
    result = await call(connect, "multi_get", pattern="docs/long.md", maxBytes=1024)
    assert read_by(result) == {}
    line = "[SKIPPED: docs/long.md - File too large (5KB > 1KB). Use 'get' with file=\"docs/long.md\" to retrieve.]"
    assert text_of(result) == line


async def test_glob_without_match_is_no_error(connect: Connect) -> None:
    result = await call(connect, "multi_get", pattern="nothing/*.md")
    assert not result.is_error
    assert text_of(result) == "Errors:\nNo files matched pattern: nothing/*.md"


async def test_status_counts_and_lists_used_collections(connect: Connect, notes: Path) -> None:
    result = await call(connect, "status")
    content = result.structured_content
    assert content["totalDocuments"] == 5
    assert content["hasVectorIndex"] is False
    assert content["needsEmbedding"] == 5
    (collection,) = content["collections"]
    assert {key: collection[key] for key in ("name", "path", "pattern", "documents")} == {
        "name": "docs",
        "path": str(notes),
        "pattern": DEFAULT_PATTERN,
        "documents": 5,
    }
    assert str(notes) in text_of(result) and "Total documents: 5" in text_of(result)


async def test_status_reports_a_run_that_computes_vectors(connect: Connect, index: Index) -> None:
    assert "embedding" not in (await call(connect, "status")).structured_content
    with EmbeddingLock(index.path) as record:
        record.update(Progress(43, 100, 10.0, 4.3, 13.2))
        result = await call(connect, "status")
    assert result.structured_content["embedding"] == {
        "percent": 43,
        "secondsLeft": 13,
        "startedAt": record.run.started_at,
        "pid": record.run.pid,
        "by": "embed",
    }
    assert f"  Computing vectors: 43 % done, 13 s left (process {record.run.pid})" in text_of(result)


async def test_resource_template_reads_encoded_paths(connect: Connect) -> None:
    async with connect() as client:
        (template,) = (await client.list_resource_templates()).resource_templates
        assert (template.name, template.uri_template, template.mime_type) == (
            "document",
            "qmd://{+path}",
            "text/markdown",
        )
        (docs,) = [one for one in (await client.list_resources()).resources if one.name == "docs"]
        (listing,) = (await client.read_resource(docs.uri)).contents
        assert str(docs.uri) == "qmd://docs/" and "qmd://docs/we%20ird/c%20%26%20d.md" in listing.text.splitlines()
        for uri in ("qmd://docs/we%20ird/c%20%26%20d.md", "qmd://docs/日本/検索.md"):
            (content,) = (await client.read_resource(uri)).contents
            assert content.uri == uri
            assert content.text.startswith("<!-- Context: Global")


async def test_missing_resources_and_escapes_say_not_found(connect: Connect, notes: Path) -> None:
    (notes.parent / "secret.md").write_text("top secret", encoding="utf-8")
    async with connect() as client:
        for path in ("docs/nope.md", "docs/%2e%2e/secret.md", "docs/..%2fsecret.md", "/etc/passwd"):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(f"qmd://{path}")
            assert raised.value.message.startswith("Document not found: ")
            # The code of the era that the client speaks.
            assert raised.value.code == (-32602 if client.protocol_version >= "2026" else -32002)


async def test_paths_are_completed_by_collection_and_then_in_it(connect: Connect) -> None:
    async with connect() as client:

        async def complete(start: str) -> Any:
            ref = ResourceTemplateReference(uri="qmd://{+path}")
            return (await client.complete(ref, {"name": "path", "value": start})).completion.values

        assert await complete("do") == ["docs/"]
        assert await complete("docs/su") == ["docs/sub/b.md"]
        assert await complete("../") == await complete("/etc/") == []


async def test_a_collection_alone_is_a_list_of_one(connect: Connect) -> None:
    for collections in ({"collection": "docs"}, {"collections": "docs"}, {"collections": ["docs"], "collection": None}):
        result = await call(connect, "query", query="cache", rerank=False, **collections)
        assert result.structured_content["results"][0]["file"] == "docs/sub/b.md"


async def test_prompts_do_not_exist(connect: Connect) -> None:
    async with connect() as client:
        with pytest.raises(MCPError) as raised:
            await client.list_prompts()
    assert raised.value.code == -32601


async def test_no_model_is_loaded_before_a_search_needs_one(connect: Connect, loader: Loader) -> None:
    async with connect() as client:
        await client.list_tools()
        await client.call_tool("get", {"file": "docs/a.md"})
        await client.call_tool("search", {"query": "cache"})
        assert loader.loads == []
        await client.call_tool("query", {"query": "cache"})
        assert loader.loads == [frozenset({"embed", "rerank", "expand"})]


async def test_progress_names_the_stages(connect: Connect) -> None:
    stages: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        stages.append(message)

    async with connect() as client:
        await client.call_tool("query", {"query": "the"}, progress_callback=on_progress)
        await client.call_tool("query", {"query": "rate limiter cache"}, progress_callback=on_progress)
    assert stages[:2] == ["loading models", "searching"]
    assert "reranking" in stages


async def test_cancelled_search_stops_at_the_next_stage(index: Index, loader: Loader) -> None:
    entered, release = threading.Event(), threading.Event()
    scored: list[int] = []

    def hook() -> None:
        scored.append(1)
        entered.set()
        release.wait(5)

    loader.before_scoring = hook
    async with Client(build_server(index), mode="2026-07-28") as client:
        with anyio.move_on_after(5) as scope:

            async def search() -> None:
                await client.call_tool("query", {"query": "rate limiter cache"})

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(search)
                await anyio.to_thread.run_sync(lambda: entered.wait(5))
                tasks.cancel_scope.cancel()
        assert not scope.cancelled_caught
        release.set()
        loader.before_scoring = lambda: None
        # The abandoned search does not delay the next one.
        result = await client.call_tool("query", {"query": "rate limiter cache"})
        assert not result.is_error
    assert scored == [1]


async def test_tools_report_a_missing_index_not_a_dead_session(tmp_path: Path, loader: Loader) -> None:
    server = build_server(open_with(tmp_path / "none.sqlite", loader))
    assert "There is no index yet" in (server.instructions or "")
    async with Client(server, mode="legacy") as client:
        result = await client.call_tool("search", {"query": "x"})
    assert result.is_error
    assert "qmd" in text_of(result)


def test_a_damaged_index_is_not_called_missing_at_the_start_of_a_session(tmp_path: Path, loader: Loader) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"not a database" * 400)
    instructions = build_server(open_with(path, loader)).instructions or ""
    assert "The index cannot be read" in instructions
    assert "no index yet" not in instructions


async def test_structured_content_is_plain_json(connect: Connect) -> None:
    result = await call(connect, "query", query="検索", rerank=False)
    assert json.loads(json.dumps(result.structured_content))["results"][0]["file"] == "docs/日本/検索.md"


@pytest.mark.parametrize("most", [60, 150, 400])
async def test_an_answer_costs_no_more_than_asked_in_either_form(connect: Connect, most: int) -> None:
    found = await call(connect, "query", query="cache teapots", maxTokens=most)
    budget = found.structured_content["budget"]
    assert budget["of"] == most >= budget["used"]
    assert max(map(count_tokens, (text_of(found), json.dumps(found.structured_content)))) <= most
    assert f"of at most {most} tokens" in text_of(found)


async def test_a_cursor_goes_on_and_what_is_seen_is_left_out(connect: Connect) -> None:
    words = "cache teapots zebra word"
    every = (await call(connect, "query", query=words)).structured_content["results"]
    cuts = [(await call(connect, "query", query=words, maxTokens=n)).structured_content for n in range(60, 500, 20)]
    cut = next(one for one in cuts if one["results"])
    seen = [row["docid"] for row in cut["results"]]
    more = (await call(connect, "query", query=words, cursor=cut["budget"]["cursor"])).structured_content
    assert [row["docid"] for row in more["results"]] == [row["docid"] for row in every[len(seen) :]]
    unseen = (await call(connect, "query", query=words, seen=seen)).structured_content
    assert [row["docid"] for row in unseen["results"]] == [row["docid"] for row in more["results"]]
    assert f"skipped {len(seen)} result" in "".join(unseen["warnings"])


async def test_notices_of_the_index_come_once_a_session_and_others_with_every_answer(connect: Connect) -> None:
    async with connect() as client:
        first, second = [await client.call_tool("query", {"query": "cache zzzqq"}) for _ in range(2)]
    told = [result.structured_content.get("warnings", []) for result in (first, second)]
    assert [sum("need embeddings" in warning for warning in warnings) for warnings in told] == [1, 0]
    assert [sum("'zzzqq'" in warning for warning in warnings) for warnings in told] == [1, 1]
    assert "need embeddings" in text_of(first) and "need embeddings" not in text_of(second)
    assert text_of(second).count("Warning: ") == len(told[1])


async def test_an_outline_names_the_headings_with_their_lines(connect: Connect) -> None:
    assert text_of(await call(connect, "get", file="docs/a.md", outline=True)).endswith(
        "-->\n\n1: Alpha Doc\n6:   Section Two\n[2 headings; the last line is 8]"
    )
    part = await call(connect, "get", file="docs/a.md#Section Two", outline=True)
    assert text_of(part).endswith("-->\n\n6:   Section Two\n[1 headings; the last line is 8]")


async def test_a_heading_names_a_part_of_a_note(connect: Connect) -> None:
    found = read_by(await call(connect, "get", file="docs/a.md#Section Two"))
    assert found["qmd://docs/a.md"].endswith("-->\n\n6: ## Section Two\n7: \n8: More text here.")


async def test_tools_and_instructions_cost_a_session_little(connect: Connect, index: Index) -> None:
    async with connect() as client:
        tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in (await client.list_tools()).tools]
    assert count_tokens(json.dumps(tools, separators=(",", ":"))) <= 1_140  # 1,080 of o200k
    assert count_tokens(build_server(index).instructions or "") <= 250
