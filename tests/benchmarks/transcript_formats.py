"""Sessions of Claude Code and Codex in the files that these programs write.

The formats are those of Claude Code 2.1 and Codex 0.114, from the documents of kvsankar/agent-history and the fixtures
of other readers. All kinds of lines occur that a reader must skip: reasoning, images, reminders, commands, snapshots,
progress, compaction, and events that repeat a message.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from msgspec import Struct

TABLES = json.loads((Path(__file__).parent / "questions/history-facts.json").read_text("utf-8"))
PROJECTS: dict[str, str] = TABLES["projects"]
_SLOTS: dict[str, list[str]] = TABLES["slots"]
_WITH_SIDECHAIN, _WITH_IMAGE = 9, 7
"""Every so many sessions have a subagent, or an image."""

Said = tuple[str, str]
"""Speaker (`user` or `assistant`) and text."""


class Session(Struct, frozen=True):
    """One session of an agent."""

    n: int
    project: str
    agent: str
    day: str
    branch: str
    opening: str


class Writer:
    """Lines of one session file. A turn begins with each message of the user."""

    def __init__(self, session: Session, size_bytes: int) -> None:
        self.session = session
        self.rng = random.Random(f"history {session.n}")
        self.cwd = PROJECTS[session.project]
        self.size_bytes = size_bytes
        self.now = datetime.fromisoformat(session.day).replace(tzinfo=UTC)
        self.now += timedelta(hours=self.rng.randint(7, 14), seconds=self.rng.randint(0, 3599))
        self.started = self.now
        self.lines: list[str] = []
        self.turn = 0
        self.per_output = 0

    def path(self) -> Path:
        """Return the relative path of the file."""
        raise NotImplementedError

    def begin(self) -> None:
        """Write what precedes the first message."""

    def ask(self, text: str) -> None:
        """Write a message of the user."""
        raise NotImplementedError

    def answer(self, text: str, *, is_last: bool) -> None:
        """Write a text of the assistant."""
        raise NotImplementedError

    def think(self, text: str) -> None:
        """Write reasoning of the assistant."""
        raise NotImplementedError

    def call(self, kind: str, command: str, output: str) -> None:
        """Write a call of a tool and its output."""
        raise NotImplementedError

    def compact(self, summary: str) -> None:
        """Write that the context was compacted."""

    def chosen(self, name: str) -> str:
        return self.fill(self.rng.choice(TABLES[name]))

    def fill(self, template: str) -> str:
        """Return a template with a value in each slot."""

        def value(slot: re.Match[str]) -> str:
            name, rng = slot[1], self.rng
            if name in _SLOTS:
                return rng.choice(_SLOTS[name])
            if name == "hex":
                return f"{rng.getrandbits(32):08x}"
            most = {"mm": 4, "dd": 28, "hh": 23, "mi": 59, "ss": 59}.get(name)
            return str(rng.randint(1, 9999)) if most is None else f"{rng.randint(1, most):02}"

        text = re.sub(r"\{([a-z]+)\}", value, template)
        return re.sub(r"\{([a-z]+)\}", value, text) if "{" in text else text

    def output(self, kind: str, size: int) -> str:
        """Return output of a tool of about a size."""
        lines: list[str] = []
        templates: list[str] = TABLES["noise"][kind]
        while size > 0:
            lines.append(self.fill(self.rng.choice(templates)))
            size -= len(lines[-1]) + 1
        return "\n".join(lines)

    def wait(self, low: int, high: int) -> None:
        """Let some seconds pass."""
        self.now += timedelta(milliseconds=self.rng.randint(low * 1000, high * 1000))

    def stamp(self) -> str:
        return self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def uuid(self) -> str:
        return str(UUID(int=self.rng.getrandbits(128), version=4))

    def put(self, row: dict[str, object]) -> None:
        """Add a line."""
        self.lines.append(json.dumps(row, ensure_ascii=False, separators=(",", ":")))

    def exchange(self, lines: Sequence[Said]) -> list[int]:
        """Write the turns of a conversation; return the turn of each line."""
        turns = []
        for position, (who, text) in enumerate(lines):
            is_last = position + 1 == len(lines) or lines[position + 1][0] == "user"
            if who == "user":
                self.turn += 1
                self.wait(15, 240)
                self.ask(text)
            else:
                self.work()
                self.answer(text, is_last=is_last)
            turns.append(self.turn)
            if who == "user" and is_last:  # the user's last word is answered, too
                self.work()
                self.answer(self.chosen("acks"), is_last=True)
        return turns

    def work(self) -> None:
        """Write calls of tools, with a few words before them."""
        if self.rng.random() < 0.5:
            self.think(self.chosen("thinking"))
        n_calls = self.rng.choice((0, 0, 1, 1, 2, 4))
        if n_calls and self.rng.random() < 0.4:
            self.answer(self.chosen("before"), is_last=False)
        for _ in range(n_calls):
            kind = self.rng.choice(list(TABLES["noise"]))
            command = self.fill(self.rng.choice(TABLES["commands"][kind]))
            self.call(kind, command, self.output(kind, int(self.per_output * self.rng.uniform(0.1, 1.9))))

    def save(self, folder: Path) -> Path:
        """Write the file, with the time of its last line; return its path."""
        path = folder / self.path()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in self.lines), encoding="utf-8")
        os.utime(path, (self.now.timestamp(), self.now.timestamp()))
        return path


class ClaudeWriter(Writer):
    """Session of Claude Code: a line for each message or content block."""

    def __init__(self, session: Session, size_bytes: int) -> None:
        super().__init__(session, size_bytes)
        self.id, self.message = self.uuid(), ""
        self.parent: str | None = None

    def path(self) -> Path:
        return Path("projects", re.sub(r"[^A-Za-z0-9]", "-", self.cwd), f"{self.id}.jsonl")

    def _entry(self, kind: str, **fields: object) -> None:
        common = {"isSidechain": False, "userType": "external", "cwd": self.cwd, "sessionId": self.id}
        common |= {"version": "2.1.74", "gitBranch": self.session.branch, "slug": "quiet-humming-otter"}
        own = self.uuid()
        self.put({"parentUuid": self.parent, **common, "type": kind, **fields, "uuid": own, "timestamp": self.stamp()})
        self.parent = own

    def _user(self, content: object, **fields: object) -> None:
        self._entry("user", message={"role": "user", "content": content}, **fields)

    def _block(self, block: dict[str, object], stop_reason: str | None) -> None:
        usage = {"input_tokens": 4, "cache_creation_input_tokens": 1211, "cache_read_input_tokens": 48_211}
        usage |= {"output_tokens": self.rng.randint(2, 900)}
        message: dict[str, object] = {
            "model": "claude-opus-4-6",
            "id": self.message,
            "type": "message",
            "role": "assistant",
        }
        message |= {"content": [block], "stop_reason": stop_reason, "stop_sequence": None, "usage": usage}
        self._entry("assistant", message=message, requestId=f"req_{self.message[4:]}")

    def begin(self) -> None:
        if self.session.n % 3 == 0:
            self.put({"type": "permission-mode", "permissionMode": "default", "sessionId": self.id})
        if self.session.n % 4 == 0:
            self.put({"type": "summary", "summary": "Earlier work on the same branch", "leafUuid": self.uuid()})
        if self.session.n % 2 == 0:
            caveat = "Caveat: The messages below were generated by the user while running local commands."
            self._user(f"<local-command-caveat>{caveat}</local-command-caveat>", isMeta=True)
            self._user("<command-name>/model</command-name>\n<command-args></command-args>")
            self._user("<local-command-stdout>Set model to opus</local-command-stdout>")

    def ask(self, text: str) -> None:
        snapshot = {"messageId": (own := self.uuid()), "trackedFileBackups": {}, "timestamp": self.stamp()}
        self.put({"type": "file-history-snapshot", "messageId": own, "snapshot": snapshot, "isSnapshotUpdate": False})
        content: object = text
        if self.rng.random() < 0.15:
            reminder = f"<system-reminder>\n{self.rng.choice(TABLES['reminders'])}\n</system-reminder>"
            content = [{"type": "text", "text": text}, {"type": "text", "text": reminder}]
        if self.turn == 2 and self.session.n % _WITH_IMAGE == 0:
            data = base64.b64encode(self.rng.randbytes(1_500)).decode()
            source = {"type": "base64", "media_type": "image/png", "data": data}
            content = [{"type": "text", "text": text}, {"type": "image", "source": source}]
        self._user(content, permissionMode="default", todos=[])

    def answer(self, text: str, *, is_last: bool) -> None:
        self.message = f"msg_01{self.rng.getrandbits(80):020x}"
        self.wait(1, 20)
        self._block({"type": "text", "text": text}, "end_turn" if is_last else None)
        if is_last and self.rng.random() < 0.3:
            row = {"durationMs": self.rng.randint(2_000, 90_000), "isMeta": False}
            self._entry("system", subtype="turn_duration", **row)
        if is_last and self.rng.random() < 0.03:
            self._user([{"type": "text", "text": "[Request interrupted by user]"}])

    def think(self, text: str) -> None:
        self.message = f"msg_01{self.rng.getrandbits(80):020x}"
        signature = base64.b64encode(self.rng.randbytes(240)).decode()
        self._block({"type": "thinking", "thinking": text, "signature": signature}, None)

    def call(self, kind: str, command: str, output: str) -> None:
        tool_id = f"toolu_01{self.rng.getrandbits(80):020x}"
        name, given = "Bash", {"command": command, "description": f"Show {kind}"}
        if kind == "code":
            name, given = "Read", {"file_path": f"{self.cwd}/{command.split()[-1]}"}
        self.message = f"msg_01{self.rng.getrandbits(80):020x}"
        self._block({"type": "tool_use", "id": tool_id, "name": name, "input": given}, "tool_use")
        self.wait(0, 30)
        if self.rng.random() < 0.2:
            data = {"type": "bash_progress", "output": output[:200], "elapsedTimeSeconds": 2}
            self._entry("progress", data=data, toolUseID=f"bash-progress-{self.turn}", parentToolUseID=tool_id)
        shown = output
        if kind == "code":
            shown = "\n".join(f"{number:>6}→{line}" for number, line in enumerate(output.split("\n"), start=1))
            shown += f"\n\n<system-reminder>\n{TABLES['reminders'][1]}\n</system-reminder>\n"
        result = {"tool_use_id": tool_id, "type": "tool_result", "content": shown, "is_error": False}
        stdout = {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}
        self._user([result], toolUseResult=stdout, sourceToolAssistantUUID=self.parent)

    def compact(self, summary: str) -> None:
        before, self.parent = self.parent, None
        metadata = {"trigger": "auto", "preTokens": 155_116}
        fields = {"subtype": "compact_boundary", "content": "Conversation compacted", "isMeta": False, "level": "info"}
        self._entry("system", **fields, logicalParentUuid=before, compactMetadata=metadata)
        opening = "This session is being continued from a previous conversation that ran out of context."
        self._user(f"{opening}\n\nSummary:\n{summary}", isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def save(self, folder: Path) -> Path:
        path = super().save(folder)
        if self.session.n % _WITH_SIDECHAIN == 0:
            helper = ClaudeWriter(self.session, 20_000)
            helper.per_output = 3_000
            helper.exchange([("user", self.chosen("subagent")), ("assistant", self.chosen("overview"))])
            lines = [json.loads(line) | {"isSidechain": True, "agentId": "a1b2c3d"} for line in helper.lines]
            inner = path.with_suffix("") / "subagents" / "agent-a1b2c3d.jsonl"
            inner.parent.mkdir(parents=True, exist_ok=True)
            inner.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return path


class CodexWriter(Writer):
    """Session of Codex: events, and items of the model's interface."""

    def __init__(self, session: Session, size_bytes: int) -> None:
        super().__init__(session, size_bytes)
        milliseconds = int(self.now.timestamp() * 1000)
        random_bits = self.rng.getrandbits(80) & ~(0xF << 76 | 0x3 << 62) | 7 << 76 | 2 << 62
        self.id = str(UUID(int=milliseconds << 80 | random_bits))
        self.tokens = 0

    def path(self) -> Path:
        return Path(f"sessions/{self.started:%Y/%m/%d}/rollout-{self.started:%Y-%m-%dT%H-%M-%S}-{self.id}.jsonl")

    def _line(self, kind: str, **payload: object) -> None:
        self.put({"timestamp": self.stamp(), "type": kind, "payload": payload})

    def _message(self, role: str, text: str) -> None:
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": text}]
        self._line("response_item", type="message", role=role, content=content)

    def begin(self) -> None:
        git = {"commit_hash": f"{self.rng.getrandbits(160):040x}", "branch": self.session.branch}
        given = {"id": self.id, "timestamp": self.stamp(), "cwd": self.cwd, "originator": "codex_cli_rs"}
        more = {"cli_version": "0.114.0", "source": "cli", "model_provider": "openai", "git": git}
        self._line("session_meta", **given, **more, base_instructions={"text": "You are Codex, a coding agent."})
        rules = "<permissions instructions>\nApproval policy is on-request.\n</permissions instructions>"
        self._message("developer", rules)
        instructions = f"<INSTRUCTIONS>\n{TABLES['agents']}</INSTRUCTIONS>"
        self._message("user", f"# AGENTS.md instructions for {self.cwd}\n\n{instructions}")
        context = f"  <cwd>{self.cwd}</cwd>\n  <shell>zsh</shell>\n  <current_date>{self.session.day}</current_date>"
        self._message("user", f"<environment_context>\n{context}\n</environment_context>")

    def ask(self, text: str) -> None:
        turn = self.uuid()
        self._line("event_msg", type="task_started", turn_id=turn, model_context_window=258_400)
        policy = {"type": "workspace-write", "network_access": False}
        context = {"turn_id": turn, "cwd": self.cwd, "approval_policy": "on-request", "sandbox_policy": policy}
        self._line("turn_context", **context, model="gpt-5.3-codex", effort="high", summary="auto")
        self._message("user", text)
        self._line("event_msg", type="user_message", message=text, images=[], local_images=[], text_elements=[])

    def answer(self, text: str, *, is_last: bool) -> None:
        self.wait(1, 20)
        self._line("event_msg", type="agent_message", message=text)
        self._message("assistant", text)
        self.tokens += self.rng.randint(2_000, 30_000)
        usage = {"input_tokens": self.tokens, "cached_input_tokens": self.tokens // 2, "output_tokens": 552}
        self._line("event_msg", type="token_count", info={"total_token_usage": usage}, rate_limits=None)
        if is_last:
            self._line("event_msg", type="task_complete", turn_id=self.uuid(), last_agent_message=text)

    def think(self, text: str) -> None:
        title = "**Checking the code**"
        self._line("event_msg", type="agent_reasoning", text=f"{title}\n\n{text}")
        encrypted = base64.b64encode(self.rng.randbytes(600)).decode()
        summary = [{"type": "summary_text", "text": f"{title}\n\n{text}"}]
        self._line("response_item", type="reasoning", summary=summary, content=None, encrypted_content=encrypted)

    def call(self, kind: str, command: str, output: str) -> None:
        call_id = f"call_{self.rng.getrandbits(96):024x}"
        if kind == "diff" and self.rng.random() < 0.5:
            patch = f"*** Begin Patch\n*** Update File: src/{self.fill('{mod}')}.py\n{output}\n*** End Patch"
            self._line("response_item", type="custom_tool_call", call_id=call_id, name="apply_patch", input=patch)
            done = {"output": "Success. Updated the following files:\nM src/x.py\n", "metadata": {"exit_code": 0}}
            self._line("response_item", type="custom_tool_call_output", call_id=call_id, output=json.dumps(done))
            return
        arguments = json.dumps({"cmd": command, "workdir": self.cwd, "yield_time_ms": 10_000})
        self._line("response_item", type="function_call", name="exec_command", arguments=arguments, call_id=call_id)
        self.wait(0, 30)
        head = f"Chunk ID: {call_id[-6:]}\nWall time: 0.4 seconds\nProcess exited with code 0\nOutput:\n"
        self._line("response_item", type="function_call_output", call_id=call_id, output=head + output)

    def compact(self, summary: str) -> None:
        self._line("compacted", message=summary, replacement_history=[])
        self._line("event_msg", type="context_compacted")
