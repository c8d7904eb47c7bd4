"""Transcripts of Claude Code and Codex: a note per session, a heading per turn, secrets masked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any

from qmd.ingest.document import decode_text
from qmd.ingest.markdown import MAX_HEADINGS, FrontMatter
from qmd.ingest.outline import Outline
from qmd.plugins.readers.texts import MAX_CHARACTERS, Decoded, join_parts, one_line
from qmd.records import Heading

_SAMPLED, _ENTRIES, _READ, _NAME, _CALL, _CALLS, _DAYS = 100, 250_000, 4_000, 200, 80, 200, 5
"""Bounds of reading and of the text. The output of tools is left out: with its first three lines a pack of 2,000 tokens
answers 8 of 20 questions, without it 13 (bench_history.py)."""

_FIELDS = {"project": "cwd payload.cwd", "branch": "gitBranch payload.git.branch"}
_FIELDS |= {"topic": "customTitle aiTitle summary", "session": "sessionId payload.id"}
_TELLING = "command cmd file_path path pattern query url description prompt"
_NOISE = re.compile(
    r"<(system-reminder|command-(?:name|message)|local-command-[a-z]+|bash-std(?:out|err)|ide_[a-z_]+|task-notification"
    r"|environment_context|user_instructions|permissions instructions|turn_aborted|recommended_plugins|INSTRUCTIONS)>"
    r"(?:[^<]++|<(?!/?\1\b))*+</\1>|</?(?:command-args|bash-input)>|\[Request interrupted by user[^]\n]{0,40}\]"
    r"|\A\s*+(?:(?:Caveat: The messages below|# AGENTS\.md instructions)(?s:.*)|# (?:Context from my|Files mentioned)"
    r"(?s:.*?)## My request for Codex:)"
)
"""Parts of a prompt that programs add."""
_SECRET = re.compile(
    r"(?:(?<![\w-])|(?<=\\[nrt]))(?:A(?:KI|SI)A[0-9A-Z]{16}(?![0-9A-Z])|(?:gh[opsur]|github_pat|npm|hf)_\w{20,}+"
    r"|sk-(?=[A-Za-z_-]{0,80}\d)[\w-]{16,}+|xox[a-z]-[\w-]{10,}+|AIza[\w-]{30,}+|glpat-[\w-]{16,}+|[rs]k_(?:live|test)_"
    r"\w{10,}+|eyJ[\w-]{15,}+(?:\.[\w-]*+){0,2})|-----BEGIN [A-Z ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----"
    r"(?=(?:\s|\\[nr]){0,4}[\w+/=:-]{8})(?:[^-]++|-(?!----(?:BEGIN|END)))*+(?:-----END[A-Z ]{0,60}-----)?"
    r"|(?P<user>://[^\s/:@\"'<>]{1,100}:)[^\s/@\"'<>]{1,200}(?=@)"
    r"|(?P<key>(?i:(?:passw(?:or)?d|passphrase|secret|token(?!s)|(?:api|access)[_ -]?key|authorization)[\w-]{0,20}"
    r"[\\\"'\]]{0,3}\s{0,2}[:=]{1,2}>?\s{0,2}\\?[\"'`]?(?:(?:bearer|basic|token) {1,2})?|bearer {1,2}))(?![$<{%])"
    r"(?:(?<=[\"'`=])|(?=[^\s\"'`]{0,60}\d)(?=[^\s\"'`]{0,60}[A-Za-z]))[^\s\"'`\\,;&<>(){}\[\]$]{8,}+(?![(\[])"
)
"""In this order: keys of AWS, GitHub, npm, Hugging Face, OpenAI, Anthropic, Slack, Google, GitLab and Stripe, JSON web
tokens; private keys; passwords in addresses; values of names such as `api_key`."""
_FRONT = re.compile(
    r"---\n((?:[a-z]++: [^\n]*+\n)*?agent: (?:claude-code|codex)\n(?:[a-z]++: .*+\n)*+)---\n|(?=## turn\d)"
)
_OWN_CALL = re.compile(r"(?:[\w-]*qmd[\w-]*:|\w+: (?:\S*/)?qmd (?:query|v?search|pack)\b)")
"""Call of a tool of qmd, by MCP or in a shell."""
_TIME = r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*Z\Z"
_TURN = re.compile(r"(?m)^## (turn\d{1,9})$")


def outline_transcript(text: str) -> Outline:
    """Return the turns of a transcript, or of a part that begins with one, as headings; other text has none."""
    if (front := _FRONT.match(text)) is None:
        return Outline()
    fields = dict(line.split(": ", 1) for line in (front[1] or "").split("\n")[:-1])
    turns = [Heading(2, turn[1], turn.start()) for turn in _TURN.finditer(text, front.end())]
    return Outline(FrontMatter({**fields}, front.end()), tuple(turns[:MAX_HEADINGS]))


def read_transcript(path: str, raw: bytes) -> Decoded:
    """Return the turns of a session below front matter; other text as it is. A session that grows keeps its turns."""
    agent = next(filter(None, map(_agent_of, map(_parsed, islice(BytesIO(raw), _SAMPLED)))), "")
    if not agent:
        return decode_text(path, raw)
    fields = dict.fromkeys(("title", "date", "days", "updated"), "") | {"agent": agent} | dict.fromkeys(_FIELDS, "")
    turns, n_damaged = _Turns(), 0
    for line in islice(BytesIO(raw), _ENTRIES):
        entry = _parsed(line)
        # The last line may be unfinished.
        n_damaged += not entry and line.endswith(b"\n") and not line.isspace()
        fields |= {name: fields[name] or _first(entry, places) for name, places in _FIELDS.items()}
        for role, words, call in _pieces_of(entry):
            fields["title"] = fields["title"] or words * (role == "user")
            turns.add(role, words, call, re.match(_TIME, _first(entry, "timestamp")))
        if turns.size > MAX_CHARACTERS:
            break
    warnings = (f"{n_damaged:,} damaged lines were skipped",)[:n_damaged]
    parts = turns.finished()
    return join_parts([_front_of(fields, turns.times), *parts] if parts else (), warnings, between="")


class _Turns:
    """Text of the turns while entries are read."""

    def __init__(self) -> None:
        self.times, self.size = list[str](), 0
        self._parts, self._start, self._is_calling = list[str](), 0, False
        self._asked = dict[str, bool]()
        """Numbers of calls of qmd in the last turn, and whether each still runs."""

    def add(self, role: str, words: str, call: str, time: re.Match[str] | None) -> None:
        """Add words of a user or assistant, or else a call or its end: a run of calls is one line."""
        if call and (call in self._asked or _OWN_CALL.match(words)):
            self._asked[call] = call not in self._asked
        if not words or (call and call in self._asked):
            return
        if role == "user" or not self.times:
            self._start, self._asked = len(self._parts), {}
            self.times.append(f"{time[1]} {time[2]} UTC" if time else "")
            self._parts.append(f"\n\n## turn{len(self.times)}\n{self.times[-1]}")
        if self._is_calling and not role:
            self._parts[-1] = f"{self._parts[-1]}; {words}"[:_CALLS]
        else:
            # No line of a message is a heading of ours.
            self._parts.append(re.sub(_TURN, r" \g<0>", f"\n\n{role.title()}: {words}" if role else f"\n\n{words}"))
        self._is_calling = not role
        self.size += len(words)

    def finished(self) -> list[str]:
        """Return the text; without a turn that asks qmd now, which would be the best answer to its own question."""
        if any(self._asked.values()):
            del self._parts[self._start :], self.times[-1:]
        return self._parts


def _front_of(fields: dict[str, str], times: Iterable[str]) -> str:
    days = sorted({time[:10] for time in times if time})
    fields |= {"date": "".join(days[:1]), "days": " ".join(days[1:-1][-_DAYS:]), "updated": "".join(days[1:][-1:])}
    # Whole words, so few that the turn has its place after them on a screen of 80 columns.
    fields["project"] = re.split(r"[\\/]", fields["project"].rstrip("\\/"))[-1]
    title = re.match(r".{1,50}(?!\S)|.{50}", one_line(fields["title"], _NAME))
    fields["title"] = ": ".join(filter(None, (fields["project"], title[0] if title else fields["agent"])))
    shown = [f"{name}: {one_line(_clean(value[:_READ]), _NAME)}\n" for name, value in fields.items() if value]
    return f"---\n{''.join(shown)}---"


def _parsed(text: str | bytes) -> dict[str, object]:
    try:
        return found if isinstance(found := json.loads(text), dict) else {}
    except (ValueError, RecursionError):
        return {}


def _first(value: object, places: str, kinds: Any = str) -> Any:
    """Return the first non-empty value of some types at places like `payload.git.branch`; an empty text without one."""
    for place in places.split():
        found = value
        for key in place.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if found and isinstance(found, kinds):
            return found
    return ""


def _agent_of(entry: dict[str, object]) -> str:
    """Return the agent that wrote an entry; empty if no field shows it."""
    kind = _first(entry, "type")
    if kind in ("session_meta", "response_item") and _first(entry, "timestamp"):
        return "codex" * bool(_first(entry, "payload.id payload.type"))
    is_claude = kind and kind == _first(entry, "message.role") and _first(entry, "uuid") and _first(entry, "sessionId")
    return "claude-code" * bool(is_claude)


def _pieces_of(entry: dict[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield the words of a user or assistant with their role, calls of tools with their number, and its end alone."""
    item = _first(entry, "payload" if entry.get("type") == "response_item" else "message", dict)
    role, text = _first(item, "role"), {"type": "text", "text": _first(item, "content")}
    if role not in ("user", "assistant", "") or _first(entry, "isSidechain isMeta isCompactSummary", bool):
        return
    blocks = (_first(item, "content", list) or [text]) if role else [item]
    texts = [_first(block, "text") for block in blocks if _first(block, "type").endswith("text")]
    if said := "\n\n".join(filter(None, [_clean(text, is_noisy=role == "user") for text in texts])):
        yield role, said, ""
    for block in blocks:
        kind, number = _first(block, "type"), _first(block, "tool_use_id id" if role else "call_id id")
        if kind.endswith(("tool_use", "_call")):
            yield "", one_line(f"{_first(block, 'name') or kind}: {_clean(_given_to(block))}", _CALL), number
        elif kind.endswith(("tool_result", "_call_output")):
            yield "", "", number


def _given_to(call: object) -> str:
    """Return the most telling part of what a tool was given, which may be JSON in a string."""
    given = _first(call, "input arguments action", (str, dict))
    given = (_parsed(given) if isinstance(given, str) else {}) or given
    found = _first(given, _TELLING, (str, list)) or given
    return (found if isinstance(found, str) else json.dumps(found, ensure_ascii=False))[:_READ]


def _clean(text: str, *, is_noisy: bool = False) -> str:
    """Return words without controls and secrets; of noisy ones also without what programs added."""
    text = _NOISE.sub("", text[:MAX_CHARACTERS]) if is_noisy else text
    return _SECRET.sub(r"\g<user>\g<key>[secret]", join_parts([text])[0].strip())
