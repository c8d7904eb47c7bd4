"""Sessions of Claude Code and Codex: text, addresses, growth, masked secrets, and files made to break a reader."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from qmd.errors import UnindexableFileError
from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.ingest.document import MAX_SIZE_BYTES, read_document
from qmd.ingest.outline import kind_of
from qmd.note_names import is_descriptive
from qmd.plugins.readers.transcripts import outline_transcript
from qmd.records import Collection, FileEntry
from tests.fakes import HashingEmbedder
from tests.note_index import NoteIndex
from tests.parsing import parse_document
from tests.program import Qmd, write_notes

ID = "6c073d8e-2bb1-45cb-90bc-a28ce44da090"
Entry = dict[str, Any]


def lines(*entries: Entry) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def claude(role: str, content: object, time: str = "2026-03-02T14:03:11.123Z", **more: object) -> Entry:
    own: Entry = {"sessionId": ID, "uuid": "u", "cwd": "/home/ann/shop", "gitBranch": "main", "isSidechain": False}
    return own | {"type": role, "timestamp": time, "message": {"role": role, "content": content}} | more


def codex(type_: str = "response_item", time: str = "2026-03-09T21:37:00.1Z", **payload: object) -> Entry:
    return {"timestamp": time, "type": type_, "payload": payload}


def message(role: str, *texts: str) -> Entry:
    return codex(type="message", role=role, content=[{"type": "input_text", "text": text} for text in texts])


def says(text: str, *others: object) -> str:
    """The indexed text of a prompt."""
    return parse_document("s.jsonl", lines(claude("user", [{"type": "text", "text": text}, *others])).encode()).text


CLAUDE = lines(
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    claude("user", "Caveat: The messages below were generated", isMeta=True),
    claude("user", "<command-name>/clear</command-name>\n<command-args></command-args>"),
    claude("user", "Why are refunds booked twice?\n<system-reminder>\nBe brief.\n</system-reminder>"),
    claude("assistant", [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."}]),
    claude("assistant", [{"type": "tool_use", "name": "Bash", "input": {"command": "git\nlog", "timeout": 1}}]),
    claude("user", [{"type": "tool_result", "content": "\x1b[31ma\x1b[0m\n\nb\nc\nd", "is_error": False}]),
    claude("assistant", [{"type": "tool_use", "name": "Todo", "input": {"n": [1]}}], isSidechain=True),
    {"type": "ai-title", "aiTitle": "Refunds", "sessionId": ID},
    claude("user", "This session is being continued", isCompactSummary=True),
    claude("user", [{"type": "image", "source": {}}, {"type": "text", "text": "Use the id."}], "2026-03-05T09:15:00Z"),
    claude("user", [{"type": "text", "text": "[Request interrupted by user]"}], "2026-03-06T09:15:00Z"),
)
CODEX = lines(
    codex("session_meta", id="019d", cwd="C:\\work\\stock", git={"branch": "dev"}, instructions=None),
    message("developer", "Obey."),
    message("user", "# AGENTS.md instructions for x\n\nBe nice.", "<environment_context>\nx</environment_context>"),
    message("user", "# Context from my IDE setup:\n## My request for Codex:\nFaster import"),
    codex("event_msg", type="user_message", message="Faster import"),
    codex(type="reasoning", summary=[{"type": "summary_text", "text": "Hm."}]),
    codex(type="function_call", name="exec_command", arguments='{"cmd": "rg x", "workdir": "y"}'),
    codex(type="function_call_output", output="Chunk ID: 5f\nWall time: 0.05 s\nOutput:\n41: run\n"),
    codex(type="function_call_output", output='{"output": "3 passed", "metadata": {}}'),
    codex(type="custom_tool_call", name="apply_patch", input="*** Begin Patch\n+a"),
    codex(type="web_search_call", action={"type": "search", "query": "batch size"}),
    message("assistant", "Done."),
    codex("compacted", message="All so far"),
)


def test_a_session_of_claude_code_is_its_turns_without_what_programs_add() -> None:
    document = parse_document("s.jsonl", CLAUDE.encode())
    assert document.text == (
        f"---\ntitle: shop: Why are refunds booked twice?\ndate: 2026-03-02\nupdated: 2026-03-05\nagent: claude-code\n"
        f"project: shop\nbranch: main\ntopic: Refunds\nsession: {ID}\n---\n\n## turn1\n2026-03-02 14:03 UTC\n\n"
        "User: Why are refunds booked twice?\n\nAssistant: I look.\n\nBash: git log\n\n"
        "## turn2\n2026-03-05 09:15 UTC\n\nUser: Use the id.\n"
    )
    assert (document.date, document.metadata["project"]) == ("2026-03-02", "shop")
    assert [str(span.first) for span in document.dates] == ["2026-03-02", "2026-03-05"]
    turns = [(one.level, one.text) for one in document.headings]
    part = document.text[document.headings[1].offset :]
    assert turns == [(2, "turn1"), (2, "turn2")] == [turns[0], (2, outline_transcript(part).headings[0].text)]


def test_a_session_of_codex_is_its_turns_each_message_once() -> None:
    assert parse_document("s.jsonl", CODEX.encode()).text == (
        "---\ntitle: stock: Faster import\ndate: 2026-03-09\nagent: codex\nproject: stock\nbranch: dev\nsession: 019d\n"
        "---\n\n## turn1\n2026-03-09 21:37 UTC\n\nUser: Faster import\n\nexec_command: rg x; "
        "apply_patch: *** Begin Patch +a; web_search_call: batch size\n\nAssistant: Done.\n"
    )
    # No model reads the name of such a file.
    assert not is_descriptive(f"rollout-2026-03-09T22-37-00-{ID}")


CALLS = [("mcp__qmd__query", {"query": "tax"}), ("Bash", {"command": "qmd pack 'tax'"})]


@pytest.mark.parametrize(("tool", "given"), CALLS)
def test_a_turn_is_left_out_while_it_asks_qmd_and_then_its_call(tool: str, given: dict[str, str]) -> None:
    own = {"type": "tool_use", "id": "c1", "name": tool, "input": given}
    other = {"type": "tool_use", "id": "c2", "name": "Read", "input": {"file_path": "/a"}}
    answer = claude("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "Found 1 result"}])
    asking = CLAUDE + lines(claude("user", "What about tax?"), claude("assistant", [own, other]))
    assert parse_document("s.jsonl", asking.encode()).text == parse_document("s.jsonl", CLAUDE.encode()).text
    answered = parse_document("s.jsonl", (asking + lines(answer, claude("assistant", "Nothing."))).encode())
    assert answered.text.endswith("User: What about tax?\n\nRead: /a\n\nAssistant: Nothing.\n")


OTHERS = rb"""{"text": "sessionId uuid message role user"}
{"type": "user", "message": {"role": "user", "content": "hi"}}
{"type": "user", "sessionId": "a", "uuid": "b", "event": "click"}
{"type": "response_item", "payload": {"type": "message"}}
---\ntitle: x\n---\n## turn1"""


@pytest.mark.parametrize("raw", [OTHERS, *OTHERS.split(b"\n"), b"[1]\r\n\r\n7\xff", b"[" * 100_000, b""])
def test_other_json_lines_are_the_text_as_it_is(raw: bytes) -> None:
    document, plain = parse_document("a.jsonl", raw), parse_document("a.txt", raw)
    assert (document.text, document.headings, document.metadata) == (plain.text, (), {})
    assert document.warnings == plain.warnings


def test_damaged_lines_are_counted_but_not_an_unfinished_last_line() -> None:
    cut = b'{"type": "user", "mess\n\0\0\xff\n[1]\n\n{"a":' + b'{"a":' * 10_000 + b'\n{"type": "user", "message": 5}\n'
    document = parse_document("s.jsonl", CLAUDE.encode() + cut + CLAUDE.encode()[:-9])
    assert document.warnings == ("4 damaged lines were skipped",)
    assert document.text.count("## turn") == 4


@pytest.mark.parametrize("mark", ["", "\r", "\x00", "\x1b[0m", "\r\n"])
def test_no_line_of_a_message_becomes_a_heading_or_front_matter(mark: str) -> None:
    forged = f"a\n{mark}## turn7{mark}\n# B\n---\ntags: [c]\n---\n{mark}## turn8"
    document = parse_document("s.jsonl", lines(claude("user", forged), claude("assistant", forged)).encode())
    assert [one.text for one in document.headings] == ["turn1"]
    assert document.title.startswith("shop: a ## turn7 # B ---") and "tags" not in document.metadata
    assert not re.search(r"[\x00-\x08\x0b-\x1f]|(?m:^## turn[78])", document.text)


@pytest.mark.parametrize("session", [CLAUDE, CODEX], ids=["claude", "codex"])
@pytest.mark.parametrize("value", [None, 0, True, "", "\ud800", [], {}, [None], [[1]], {"a": 1}, "## turn9"], ids=repr)
def test_a_value_of_another_type_costs_at_most_its_line(session: str, value: object) -> None:
    for key in re.findall(r'"(\w+)":', session):
        written = rf'"{key}": (?:"(?:[^"\\]|\\.)*"|true|false|null|\d+)'
        changed = re.sub(written, lambda _, key=key: f'"{key}": {json.dumps(value)}', session)  # type: ignore[misc]
        document = parse_document("s.jsonl", (changed + session).encode())
        assert document.headings[-1].text == f"turn{len(document.headings)}"
        assert "\ud800" not in document.text


SECRETS = (
    *("AKIAIOSFODNN7EXAMPLE", f"ghp_{'a1B2' * 9}", f"github_pat_11{'a' * 20}", "sk-ant-api03-AbCdEfGhIjKlMnOp"),
    *("sk-proj-abc123DEF456ghi789", "xoxb-123456789012-abcdef", f"AIza{'Sy12' * 9}", "glpat-abcdefghij1234567890"),
    *(f"npm_{'a1B2' * 9}", f"hf_{'aBcD' * 9}", "rk_live_51Habcdefghijk", "eyJhbGciOiJIUzI1NiIsIn.eyJzdWIi.dozj-gN"),
    *("password=|correcthorse", "api_key: |abcdef1234567890", "postgres://ann:|hunter2|@db"),
    *("Authorization: Bearer |abc123def456", '{\\"password\\": \\"|hunter2hunter', "AWS_SECRET_ACCESS_KEY=|wJalr/Xb"),
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKC\nAQEA12\n-----END RSA PRIVATE KEY-----",
)
HARMLESS = f"""0e3689aea549c3d3cf87ba8d606e0802089b939d {ID} max_tokens=1000000 token=$GITHUB_TOKEN
password: see vault
password: required, password = getpass.getpass(), password: ${{DB_PASSWORD}}, token: Optional[str]
task-force-something-long-2 sk-learn-pipeline-with-columns git@github.com:foo/bar.git http://localhost:3000/
access token expires in 3600 seconds
a -----BEGIN PRIVATE KEY----- is how it starts"""


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_masked_in_titles_messages_and_calls(secret: str) -> None:
    kept, _, rest = secret.partition("|") if "|" in secret else ("", "", secret)
    hidden, _, end = rest.partition("|")
    shown = f"{kept}[secret]{end}"
    call = {"type": "tool_use", "name": "Bash", "input": {"command": f"run {kept}{hidden}{end}"}}
    text = says(f"Use {kept}{hidden}{end}", call)
    assert f"title: shop: Use {shown}"[:60] in text and f"User: Use {shown}" in text and f"Bash: run {shown}" in text
    assert hidden[:6] not in text and says(HARMLESS).endswith(f"User: {HARMLESS}\n")


def test_a_transcript_may_be_as_large_as_converted_files_and_other_lines_only_as_text(tmp_path: Path) -> None:
    image = claude("user", [{"type": "image", "source": {"data": "A" * MAX_SIZE_BYTES}}, {"type": "text", "text": "?"}])
    write_notes(tmp_path, {"a.jsonl": CLAUDE + lines(image), "b.jsonl": '{"a": 1}\n' * (MAX_SIZE_BYTES // 9 + 1)})
    entries = [FileEntry(name, tmp_path, MAX_SIZE_BYTES + 1, 0) for name in ("a.jsonl", "b.jsonl")]
    assert len(read_document(entries[0], kind_of("a.jsonl")).text) < 1_000
    for entry in (entries[1], FileEntry("a.jsonl", tmp_path, 200_000_000, 0)):
        with pytest.raises(UnindexableFileError, match=f"'{entry.path}' has ") as caught:
            read_document(entry, kind_of(entry.path))
        assert caught.value.code == "too_large"


def test_only_what_was_appended_is_embedded(tmp_path: Path) -> None:
    index, file = NoteIndex(), tmp_path / f"{ID}.jsonl"
    turns = [lines(claude("user", f"Question {n}? " * 40), claude("assistant", "Because. " * 90)) for n in range(41)]
    runs = []
    for n, more in ((20, ""), (21, lines({"type": "custom-title", "customTitle": "New"})), (40, ""), (41, "{cut")):
        file.write_text("".join(turns[:n]) + more)
        update_collection(index, Collection("notes", tmp_path, "**/*.jsonl"), verify=True)
        runs.append(embed_pending(index, HashingEmbedder()))
    for before, run in pairwise(runs):
        # The last chunk may gain the first of the new turns.
        assert before.chunks > 15 and run.reused >= before.chunks - 1


def test_turns_have_addresses_and_hits_name_them(qmd: Qmd, tmp_path: Path) -> None:
    write_notes(tmp_path / "n", {f"{ID}.jsonl": CLAUDE, "other.jsonl": '{"a": "refunds"}\n'})
    assert "2 notes (2 jsonl)" in qmd("index", str(tmp_path / "n"), "--glob", "**/*.jsonl", "--no-embed").out
    for address in (f"{ID}.jsonl:turn2", f"{ID}.jsonl:turn 2", f"n/{ID}.jsonl#turn2"):
        assert "User: Use the id." in qmd("get", address).out and "refunds" not in qmd("get", address).out
    assert "has no heading 'turn9'" in qmd("get", f"{ID}.jsonl:turn9").err
    for question in ("use id", "2026-03-05", "id updated>=2026-03-05", "use project:shop"):
        assert json.loads(qmd("search", question, "--json").out)[0]["path"] == f"{ID}.jsonl"
    assert json.loads(qmd("search", "use id", "--json").out)[0]["heading_trail"] == ["turn2"]
