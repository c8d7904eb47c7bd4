"""Collections, files, contexts and status for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from qmd.analysis.stopwords import LANGUAGES
from qmd.app.records import ContextNote
from qmd.escapes import LONG_CHARS, address_line, one_line, visible
from qmd.file_names import to_text
from qmd.masks import NAMES
from qmd.records import Collection, StoredDocument
from qmd.render.text import human_size, json_text, relative_time
from qmd.status import CollectionStatus, EmbeddingRun, IndexStatus, SkippedFile, fact_lines, fact_values
from qmd.times import parse_time

if TYPE_CHECKING:
    from datetime import datetime

_OLD_DAYS = 180
_PREVIEW_CHARACTERS = 60
_SKIPPED_SHOWN = 20


class StatusReport(Struct, frozen=True):
    """Data of `status`."""

    index: IndexStatus
    collections: tuple[Collection, ...] = ()
    daemon_pid: int | None = None


NO_COLLECTIONS = "No collections found. Run 'qmd index ~/notes' to create one.\n"


def render_collections(collections: Sequence[Collection], counts: Sequence[CollectionStatus], now: datetime) -> str:
    if not collections:
        return NO_COLLECTIONS
    lines = [f"Collections ({len(collections)}):", ""]
    for one in collections:
        n_files, updated_at = counts_of(one, counts)
        rows = [row for row in collection_facts(one) if row[0] in ("Path", "Pattern", "Ignore", "Gitignore")]
        rows += [("Files", f"{n_files}"), ("Updated", relative_time(updated_at, now))]
        lines += [_title(one), *_fact_lines(rows), ""]
    return "\n".join(lines) + "\n"


def collections_json(collections: Sequence[Collection], counts: Sequence[CollectionStatus]) -> str:
    """Render `collection list --json`; `mask` repeats `pattern` for programs that read that name."""
    rows = []
    for one in collections:
        n_files, updated_at = counts_of(one, counts)
        rows.append(
            {
                "name": one.name,
                "path": to_text(one.path),
                "pattern": one.pattern,
                "mask": one.pattern,
                "files": n_files,
                "updated": updated_at,
                "include": one.include_by_default,
                "ignore": one.ignore,
                "gitignore": one.gitignore,
            }
        )
    return json_text(rows)


def counts_of(collection: Collection, counts: Sequence[CollectionStatus]) -> tuple[int, str | None]:
    """Return (documents, time of the last update) of a collection, which may not be in the index yet."""
    found = next((one for one in counts if one.name == collection.name), None)
    return (found.documents, found.updated_at) if found is not None else (0, None)


def _title(collection: Collection) -> str:
    """Return `name (qmd://name/)`, marked if default searches exclude it."""
    excluded = "" if collection.include_by_default else " [excluded]"
    return f"{one_line(collection.name)} ({address_line(f'qmd://{collection.name}/')}){excluded}"


def mask(collection: Collection) -> str:
    """Describe the files that a collection includes."""
    without = f", not {', '.join(collection.ignore)}" if collection.ignore else ""
    which = NAMES.get(collection.pattern, collection.pattern)
    return which + without + ("" if collection.gitignore else ", also what git ignores")


def collection_facts(collection: Collection) -> list[tuple[str, str]]:
    """Return the settings of a collection as (name, value)."""
    rows = [
        ("Path", to_text(collection.path)),
        ("Pattern", collection.pattern),
        ("Include", "yes (default)" if collection.include_by_default else "no"),
        ("Ignore", ", ".join(collection.ignore)),
        ("Gitignore", "" if collection.gitignore else "not followed"),
        ("Update", collection.update_command or ""),
        ("Contexts", f"{len(collection.context)}" if collection.context else ""),
    ]
    return [(name, value) for name, value in rows if value]


def _fact_lines(rows: Sequence[tuple[str, str]]) -> list[str]:
    return [f"  {f'{name}:':<9} {one_line(value, LONG_CHARS)}" for name, value in rows]


def render_collection(collection: Collection) -> str:
    return "\n".join([f"Collection: {one_line(collection.name)}", *_fact_lines(collection_facts(collection))]) + "\n"


def render_collection_names(collections: Sequence[Collection], counts: Sequence[CollectionStatus]) -> str:
    if not collections:
        return NO_COLLECTIONS
    sizes = [(address_line(one.name), counts_of(one, counts)[0]) for one in collections]
    lines = [f"  qmd://{name}/  ({n_files} file{'' if n_files == 1 else 's'})" for name, n_files in sizes]
    return "\n".join(["Collections:", "", *lines]) + "\n"


def render_files(documents: Sequence[StoredDocument], now: datetime) -> str:
    """Render `ls` of a collection: size, time of modification and address."""
    sizes = [human_size(document.size) for document in documents]
    width = max((len(size) for size in sizes), default=0)
    return "".join(
        f"{size:>{width}}  {listing_time(document.modified_at, now)}  {address_line(document.uri)}\n"
        for size, document in zip(sizes, documents, strict=True)
    )


def listing_time(moment: str, now: datetime) -> str:
    """Format a time as `Nov 22 10:11`; old times have the year instead."""
    at = parse_time(moment).astimezone()
    day = f"{at:%b} {at.day:>2}"
    return f"{day}  {at.year}" if (now - at).days > _OLD_DAYS else f"{day} {at:%H:%M}"


def render_contexts(notes: Sequence[ContextNote]) -> str:
    if not notes:
        return "No contexts configured. Use 'qmd context add' to add one.\n"
    lines = ["", "Configured Contexts", ""]
    name = None
    for note in notes:
        if note.collection != name:
            name = note.collection
            lines.append(one_line(name or "*"))
        root = "  / (root)" if name else "  /"
        lines.append(f"  {one_line(note.prefix)}" if note.prefix else root)
        lines += [f"    {line}" for line in visible(note.text).split("\n")]
    return "\n".join(lines) + "\n"


def render_status(report: StatusReport, now: datetime) -> str:
    """Render `status` as text; programs parse `Vectors:  N embedded`."""
    index = report.index
    lines = ["QMD Status", "", f"Index: {one_line(index.place, LONG_CHARS)}", f"Size:  {human_size(index.size_bytes)}"]
    if report.daemon_pid is not None:
        lines.append(f"MCP:   running (PID {report.daemon_pid})")
    lines += ["", "Documents", f"  Total:    {index.documents} files indexed", f"  Vectors:  {index.vectors} embedded"]
    if index.pending_documents:
        remedy = "run 'qmd embed'" if index.embedding is None else "being computed"
        lines.append(f"  Pending:  {index.pending_documents} need embedding ({remedy})")
    if index.holder is not None:
        run = index.holder
        began = relative_time(run.started_at, now)
        what = f"computing vectors, {run.state}" if run.task.computes else f"{run.task.work} the index"
        lines.append(f"  Running:  {what} ({run.who}, began {began})")
    lines.append(f"  Updated:  {relative_time(index.updated_at, now)}")
    facts = fact_lines(index)
    width = max([8, *(len(label) for label, _ in facts)]) + 1
    lines += [f"  {f'{label}:':<{width}} {one_line(value, LONG_CHARS)}" for label, value in facts]
    lines += ["", *_status_collections(report, now)]
    if index.left_out:
        lines += ["", f"Skipped ({len(index.left_out)})"]
        lines += [f"  {one_line(one.collection)}: {one.reason}" for one in index.left_out[:_SKIPPED_SHOWN]]
        if len(index.left_out) > _SKIPPED_SHOWN:
            lines.append(f"  and {len(index.left_out) - _SKIPPED_SHOWN} more (qmd status --problems)")
    return "\n".join(lines) + "\n"


def _status_collections(report: StatusReport, now: datetime) -> list[str]:
    if not report.collections:
        return ["No collections. Run 'qmd index ~/notes' to index markdown files."]
    lines, languages = ["Collections"], {one.name: one.language for one in report.index.collections}
    for one in report.collections:
        n_files, updated_at = counts_of(one, report.index.collections)
        lines += [f"  {_title(one)}", f"    Pattern:  {one_line(NAMES.get(one.pattern, one.pattern), LONG_CHARS)}"]
        lines.append(f"    Files:    {n_files} (updated {relative_time(updated_at, now)})")
        if language := languages.get(one.name):
            lines.append(f"    Language: {LANGUAGES[language]}")
        if one.context:
            lines.append(f"    Contexts: {len(one.context)}")
        for prefix, note in one.context.items():
            text = one_line(note, LONG_CHARS)
            preview = text if len(text) <= _PREVIEW_CHARACTERS else text[: _PREVIEW_CHARACTERS - 3] + "..."
            lines.append(f"      {one_line(prefix or '/')}: {preview}")
    return lines


def status_json(report: StatusReport) -> str:
    """Render `status --json`; the first keys are those of the MCP `status` tool."""
    index = report.index
    counts = [counts_of(one, index.collections) for one in report.collections]
    languages = {one.name: one.language for one in index.collections}
    locks: list[dict[str, int | str]] = []
    if (run := index.holder) is not None:
        locks = [{"lock": "vectors", "owner": run.who, "pid": run.pid, "by": run.by, "startedAt": run.started_at}]
    return json_text(
        {
            **fact_values(index, is_for_tool=True),
            "collections": [
                {
                    "name": one.name,
                    "path": to_text(one.path),
                    "pattern": one.pattern,
                    "documents": n_documents,
                    "lastUpdated": updated_at,
                    "include": one.include_by_default,
                    "language": languages.get(one.name),
                    "contexts": dict(one.context),
                }
                for one, (n_documents, updated_at) in zip(report.collections, counts, strict=True)
            ],
            "index": index.place,
            **fact_values(index, is_for_tool=False),
            "leftOut": [
                {"collection": one.collection, "path": one.path, "reason": one.reason} for one in index.left_out
            ],
            "embedding": None if index.embedding is None else embedding_row(index.embedding),
            "locks": locks,
            # Programs read these keys.
            "models": [],
            "tips": [],
        }
    )


def render_problems(problems: Sequence[SkippedFile], *, as_json: bool) -> str:
    """Render files that could not be read completely, as `collection/path:line: reason`."""
    if not as_json:
        return (
            "".join(f"{address_line(one.collection)}/{one.as_grep_line}\n" for one in problems)
            or "Every file was read completely.\n"
        )
    keys = ("collection", "path", "line", "reason", "indexed")
    rows = [(one.collection, one.path, one.line, one.reason, one.is_indexed) for one in problems]
    return json_text([dict(zip(keys, row, strict=True)) for row in rows])


def embedding_row(run: EmbeddingRun) -> dict[str, int | float | str | None]:
    """Return a run that computes vectors, for JSON and MCP."""
    left_s = None if run.left_s is None else round(run.left_s)
    return {"percent": run.percent, "secondsLeft": left_s, "startedAt": run.started_at, "pid": run.pid, "by": run.by}
