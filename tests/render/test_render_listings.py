import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd import status
from qmd.app.records import ContextNote
from qmd.masks import DEFAULT_PATTERN, PROSE
from qmd.plugins.mcp.presentation import status_text, structured_status
from qmd.records import Collection, StoredDocument
from qmd.render.drawing import Screen
from qmd.render.listings import (
    StatusReport,
    collections_json,
    render_collection,
    render_collections,
    render_contexts,
    render_files,
    render_status,
    status_json,
)
from qmd.render.tables import draw_status
from qmd.render.text import human_size, relative_time
from qmd.status import CollectionStatus, Fact, IndexStatus, SkippedFile

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NOTES = Collection("notes", Path("/n"), context={"": "all", "work": "about\nwork"})
CODE = Collection("code", Path("/c"), "**/*.py", ignore=("x/**",), update_command="git pull", include_by_default=False)
COUNTS = (CollectionStatus("notes", Path("/n"), "**/*.md", 3, "2026-06-01T11:59:55.000Z", True),)
INDEX = IndexStatus(Path("/i.sqlite"), 2048, 3, 2, 1, 9, 8, "2026-06-01T11:00:00.000Z", "f00d", COUNTS)


def test_collection_blocks_keep_the_title_and_labels_that_programs_parse() -> None:
    shown = render_collections([NOTES, CODE], COUNTS, NOW)
    assert re.findall(r"^(.+?)\s+\(qmd://.+/\)", shown, re.MULTILINE) == ["notes", "code"]
    assert (
        "code (qmd://code/) [excluded]\n  Path:     /c\n  Pattern:  **/*.py\n  Ignore:   x/**\n  Files:    0\n" in shown
    )
    assert "  Updated:  5s ago\n" in shown


def test_a_mask_that_qmd_chose_has_a_name_for_readers_and_its_text_for_programs() -> None:
    prose = replace(NOTES, pattern=PROSE)
    index = replace(INDEX, collections=(replace(COUNTS[0], pattern=PROSE),))
    assert "    Pattern:  all prose\n" in render_status(StatusReport(index, (prose,)), NOW)
    assert "(all prose, 3 documents" in status_text(index)
    assert f"  Pattern:  {PROSE}\n" in render_collections([prose], COUNTS, NOW)
    assert json.loads(collections_json([prose], COUNTS))[0]["pattern"] == PROSE


def test_collection_json_has_every_promised_key() -> None:
    row = json.loads(collections_json([NOTES], COUNTS))[0]
    assert list(row)[:7] == ["name", "path", "pattern", "mask", "files", "updated", "include"]
    assert (row["files"], row["mask"], row["include"]) == (3, DEFAULT_PATTERN, True)


def test_collection_show_keeps_its_labels() -> None:
    assert render_collection(NOTES).splitlines() == [
        "Collection: notes",
        "  Path:     /n",
        f"  Pattern:  {DEFAULT_PATTERN}",
        "  Include:  yes (default)",
        "  Contexts: 2",
    ]


def test_status_counts_vectors_on_a_line_that_programs_parse() -> None:
    shown = render_status(StatusReport(INDEX, (NOTES,)), NOW)
    assert re.findall(r"^\s*Vectors:\s*(\d+)", shown, re.MULTILINE) == ["8"]
    assert "Pending:  1 need embedding (run 'qmd embed')" in shown


def test_status_json_starts_with_the_keys_of_the_mcp_tool() -> None:
    keys = json.loads(status_json(StatusReport(INDEX, (NOTES,))))
    assert list(keys)[:4] == ["totalDocuments", "needsEmbedding", "hasVectorIndex", "collections"]
    assert keys["collections"][0]["documents"] == 3


def test_listed_files_align_sizes_and_show_the_year_of_old_ones(set_zone: Callable[[str], None]) -> None:
    set_zone("UTC")
    new = StoredDocument(1, "c", "a.md", "", "0" * 64, "2026-05-31T08:05:00.000Z", 5)
    old = StoredDocument(2, "c", "b c.md", "", "0" * 64, "2024-01-02T08:05:00.000Z", 2048)
    assert render_files([new, old], NOW) == (
        "   5 B  May 31 08:05  qmd://c/a.md\n2.0 KB  Jan  2  2024  qmd://c/b c.md\n"
    )


def test_listed_files_show_the_time_where_the_user_is(set_zone: Callable[[str], None]) -> None:
    set_zone("Pacific/Kiritimati")
    note = StoredDocument(1, "c", "a.md", "", "0" * 64, "2026-05-31T18:05:00.000Z", 5)
    assert render_files([note], NOW) == "5 B  Jun  1 08:05  qmd://c/a.md\n"


def test_contexts_are_listed_under_their_collection_and_the_global_one_first() -> None:
    notes = [
        ContextNote("", "", "everything"),
        ContextNote("notes", "", "all"),
        ContextNote("notes", "work", "about\nwork"),
    ]
    assert render_contexts(notes).split("\n")[3:] == [
        "*", "  /", "    everything",
        "notes", "  / (root)", "    all", "  work", "    about", "    work", "",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("moment", "shown"),
    [
        ("2026-06-01T11:59:55.000Z", "5s ago"),
        ("2026-06-01T11:00:00Z", "1h ago"),
        ("2026-05-01T12:00:00Z", "31d ago"),
        ("2026-06-01T13:00:00Z", "0s ago"),
        (None, "never"),
    ],
)
def test_relative_times_use_the_largest_unit(moment: str | None, shown: str) -> None:
    assert relative_time(moment, NOW) == shown


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (1536, "1.5 KB"), (3 * 1024**3, "3.0 GB")])
def test_sizes_have_one_decimal(size: int, shown: str) -> None:
    assert human_size(size) == shown


def test_status_names_left_out_files_with_the_reason() -> None:
    files = tuple(SkippedFile("notes", f"{n}.md", f"'{n}.md' is binary") for n in range(25))
    report = StatusReport(replace(INDEX, left_out=files))
    text = render_status(report, NOW)
    assert "\nSkipped (25)\n  notes: '0.md' is binary\n" in text
    assert "\n  and 5 more (qmd status --problems)\n" in text
    listed = json.loads(status_json(report))["leftOut"]
    assert len(listed) == 25
    assert listed[0] == {"collection": "notes", "path": "0.md", "reason": "'0.md' is binary"}


def test_a_fact_with_a_label_is_a_line_in_every_form_of_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    fact = Fact("passages", lambda index: index.chunks, "Passages", is_for_tool=True)
    monkeypatch.setattr(status, "FACTS", (*status.FACTS, fact))
    report = StatusReport(INDEX)
    assert "\n  Passages: 9\n" in render_status(report, NOW)
    assert re.search(r"Passages +9", "".join(draw_status(Screen(width=80), report, NOW, Path("/h"))))
    assert json.loads(status_json(report))["passages"] == 9
    assert "\n  Passages: 9\n" in status_text(INDEX)
    assert structured_status(INDEX)["passages"] == 9
