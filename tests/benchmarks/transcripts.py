"""Write the history of one developer's agents: 60 sessions of Claude Code and Codex, as these programs store them.

    python -m tests.benchmarks.transcripts FOLDER    # FOLDER/projects/NAME/UUID.jsonl, FOLDER/sessions/2026/MM/DD/…

`questions/history-facts.json` has what is decided, when and in which words. Around these turns are everyday ones, and
long output of tools that has many of the same words. The output is the same in every run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from tests.benchmarks.transcript_formats import PROJECTS, TABLES, ClaudeWriter, CodexWriter, Said, Session, Writer

TODAY: str = TABLES["today"]
"""Day on which the questions are asked."""

_COMPACTED = 8
"""Every so many sessions are compacted."""


class Fact(Struct, frozen=True):
    """A decision: `evidence` is a sentence of one of `lines`, which are said in `session`."""

    id: str
    session: int
    project: str
    topic: str
    decision: str
    why: str
    lines: list[Said]
    evidence: str


class Place(Struct, frozen=True):
    """Where the evidence of a fact is: its file, relative, and its turn, from 1."""

    file: str
    turn: int


SESSIONS = [Session(**row) for row in TABLES["sessions"]]
FACTS = [Fact(**{**row, "lines": [(who, text) for who, text in row["lines"]]}) for row in TABLES["facts"]]


def writer_of(session: Session, size_bytes: int) -> Writer:
    """Return the writer of a session's program."""
    return (CodexWriter if session.agent == "codex" else ClaudeWriter)(session, size_bytes)


def write_session(writer: Writer, blocks: Sequence[Sequence[Said]], n_fillers: int) -> list[list[int]]:
    """Write an opening, then the blocks among everyday exchanges; return the turn of each line of each block."""
    rng, fillers = writer.rng, TABLES["fillers"]
    chosen = sorted(rng.choices(range(len(fillers)), k=n_fillers))
    everyday = [
        [(w, writer.fill(text)) for w, text in zip(("user", "assistant"), fillers[n], strict=True)] for n in chosen
    ]
    cuts = sorted(rng.randint(0, n_fillers) for _ in blocks)
    n_answers = 1 + n_fillers + sum(len(block) for block in blocks)
    is_claude = isinstance(writer, ClaudeWriter)
    noise = writer.size_bytes - n_answers * (4_200 if is_claude else 3_000)
    writer.per_output = max(400, int(noise / n_answers / (2.7 if is_claude else 1.5)))
    writer.begin()
    writer.exchange([("user", writer.session.opening), ("assistant", writer.chosen("overview"))])
    turns, start = [], 0
    for block, cut in zip(blocks, cuts, strict=True):
        for one in everyday[start:cut]:
            writer.exchange(one)
        turns.append(writer.exchange(block))
        start = cut
    if writer.session.n % _COMPACTED == 0:
        facts = [fact for fact in FACTS if fact.session == writer.session.n]
        writer.compact("\n".join(f"- {fact.topic}: {fact.decision}" for fact in facts))
    for one in everyday[start:]:
        writer.exchange(one)
    return turns


def write_history(folder: Path) -> dict[str, Place]:
    """Write all sessions; return the place of each fact's evidence."""
    places: dict[str, Place] = {}
    for session in SESSIONS:
        rng = random.Random(f"size {session.n}")
        writer = writer_of(session, int(45_000 * 8 ** rng.random() ** 5))
        facts = [fact for fact in FACTS if fact.session == session.n]
        blocks = [fact.lines for fact in facts]
        for one in TABLES["near"]:
            if one["session"] == session.n:
                blocks.insert(rng.randint(0, len(blocks)), [(who, text) for who, text in one["lines"]])
        turns = write_session(writer, blocks, rng.randint(2, 20))
        file = writer.save(folder).relative_to(folder).as_posix()
        for fact in facts:
            line = next(n for n, (_, text) in enumerate(fact.lines) if fact.evidence in text)
            places[fact.id] = Place(file, turns[blocks.index(fact.lines)][line])
    return places


def write_plain(folder: Path, n: int, size_bytes: int) -> Writer:
    """Write a session of everyday turns, for measuring cost; return its writer."""
    project, day = list(PROJECTS)[n % 4], datetime(2024, 1, 1) + timedelta(n // 4)
    agent = "codex" if n % 3 == 0 else "claude-code"
    opening = f"Session {n}: continue with step {n % 17} of the plan"
    writer = writer_of(Session(100_000 + n, project, agent, f"{day:%Y-%m-%d}", "main", opening), size_bytes)
    write_session(writer, (), 20)
    writer.save(folder)
    return writer


if __name__ == "__main__":
    write_history(Path(sys.argv[1]))
