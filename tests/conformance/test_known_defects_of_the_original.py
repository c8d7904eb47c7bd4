"""Defects of the original: one test or more for each symptom, by number."""

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, permutations
from pathlib import Path

import numpy as np
import pytest

from qmd.indexing.embed import embed_pending
from qmd.indexing.update import update_collection
from qmd.plugins.bench.fixture import same_file
from qmd.records import Collection
from qmd.retrieval.pipeline import search
from qmd.retrieval.query import parse_query
from qmd.retrieval.request import SearchRequest
from qmd.store.opening import open_reader, open_writer
from tests import fakes
from tests.note_index import NoteIndex
from tests.program import Qmd, Run


@dataclass(frozen=True)
class World:
    """Home folder and the program in it."""

    home: Path
    config_file: Path
    database: Path
    run: Qmd

    def ok(self, *argv: str) -> Run:
        """Run a command that must succeed."""
        done = self.run(*argv)
        assert done.status == 0, f"{argv}: {done}"
        return done

    def write(self, folder: str, files: Mapping[str, str]) -> Path:
        """Write files below a folder of the home; return the folder."""
        for name, text in files.items():
            target = self.home / folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return self.home / folder

    def collection(self, name: str, files: Mapping[str, str], *options: str) -> Path:
        """Write files and add their folder as a collection."""
        folder = self.write(name, files)
        self.ok("collection", "add", str(folder), "--name", name, *options)
        return folder


@pytest.fixture
def world(home: Path, qmd: Qmd, tmp_path: Path) -> World:
    return World(home, tmp_path / "config" / "qmd" / "index.yml", tmp_path / "cache" / "qmd" / "index.sqlite", qmd)


def test_01_a_small_collection_is_found_despite_hundreds_of_better_hits_elsewhere(world: World) -> None:
    world.collection("big", {f"{n}.md": f"# Kiwi {n}\n\nkiwi kiwi kiwi\n" for n in range(600)})
    world.collection("small", {"s.md": "# Fruit\n\nA long note that names the kiwi once among many other words.\n"})
    rows = world.ok("search", "kiwi", "-c", "small", "-n", "2", "--json").json
    assert [row["file"] for row in rows] == ["qmd://small/s.md"]


def test_02_excluding_every_collection_searches_none(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    world.ok("collection", "exclude", "docs")
    done = world.ok("search", "kiwi", "--json")
    assert done.json == []
    assert "every collection is excluded" in done.err
    assert len(world.ok("search", "kiwi", "--json", "-c", "docs").json) == 1


def test_03_a_tilde_in_a_path_is_the_home_folder(world: World) -> None:
    world.write("notes", {"a.md": "# Kiwi\n"})
    world.config_file.parent.mkdir(parents=True)
    world.config_file.write_text("collections:\n  notes:\n    path: ~/notes\n    pattern: '**/*.md'\n")
    assert "Indexed: 1 new" in world.ok("update").out


def test_04_relative_paths_of_a_project_start_at_the_project(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project = world.write("project", {"docs/a.md": "# Kiwi\n", "src/deep/x.txt": ""})
    world.write("project/.qmd", {"index.yml": "collections:\n  docs:\n    path: docs\n    pattern: '**/*.md'\n"})
    monkeypatch.chdir(project)
    assert "Indexed: 1 new" in world.ok("update").out
    monkeypatch.chdir(project / "src" / "deep")
    assert "0 new, 0 updated, 1 unchanged, 0 removed" in world.ok("update").out
    assert len(world.ok("search", "kiwi", "--json").json) == 1


def test_05_a_file_emptied_on_disk_is_no_longer_found_by_its_old_text(world: World) -> None:
    folder = world.collection("docs", {"a.md": "# Kiwi\n\nripe kiwi\n", "b.md": "# Other\n"})
    (folder / "a.md").write_text("  \n\n")
    world.ok("update")
    assert world.ok("search", "kiwi", "--json").json == []


@pytest.mark.parametrize("format", ["json", "csv", "cli", "md", "xml"])
def test_06_numbered_snippet_lines_are_lines_of_the_file(world: World, format: str) -> None:
    lines = ["# Title", "", "one", "two", "the marker zebra is here", "three", "four", "five"]
    world.collection("docs", {"a.md": "\n".join(lines) + "\n"})
    out = world.ok("search", "zebra", "--line-numbers", "--format", format).out
    if format == "json":
        out = json.loads(out)[0]["snippet"]
    for number in (4, 5, 6):
        assert f"{number}: {lines[number - 1]}" in out
    assert ": @@" not in out  # The header is no line of the file.


def test_07_the_order_of_typed_lines_changes_neither_weights_nor_results(world: World) -> None:
    embedder = fakes.HashingEmbedder()
    reader = NoteIndex(embedder=embedder)
    for number in range(12):
        reader.add(f"{number}.md", f"# Note {number}\n\n" + "kiwi ripe " * (number % 4) + "pear garden " * (number % 3))
    engines = fakes.fake_engines(embedder)
    seen = set()
    for lines in permutations(("lex: ripe kiwi", "vec: pear garden", "lex: garden")):
        answer = search(reader, engines, parse_query("\n".join(lines)), SearchRequest(explain=True, rerank=False))
        explained = [hit.explanation for hit in answer.hits if hit.explanation]
        weights = {(one.query, one.weight) for entry in explained for one in entry.contributions}
        seen.add((tuple(hit.document.path for hit in answer.hits), frozenset(weights)))
    assert len(seen) == 1


def test_08_an_expand_line_is_the_same_as_its_text(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n\nripe\n", "b.md": "# Expand\n\nhow to expand a disk\n"})
    plain = world.ok("query", "kiwi", "--json", "--no-rerank").json
    prefixed = world.ok("query", "expand: kiwi", "--json", "--no-rerank").json
    assert prefixed == plain
    assert [row["path"] for row in prefixed] == ["a.md"]


def test_09_the_reranker_reads_the_chunk_that_matched_by_meaning(tmp_path: Path) -> None:
    filler = "\n\n".join(f"Paragraph {n} tells of gardens and of the weather in words of its own." for n in range(120))
    (tmp_path / "a.md").write_text(f"# Diary\n\n{filler}\n\n## Later\n\nThe automobile was left there.\n")
    (tmp_path / "b.md").write_text("# Cooking\n\nA pan, an onion, an hour.\n")
    embedder = fakes.HashingEmbedder(synonyms={"car": "automobile"})
    reranker = fakes.OverlapReranker()
    with open_writer(tmp_path / "index.sqlite") as writer:
        collection = Collection("docs", tmp_path)
        writer.mirror_config([collection], None, "digest")
        update_collection(writer, collection)
        embed_pending(writer, embedder)
    with open_reader(tmp_path / "index.sqlite") as reader:
        answer = search(reader, fakes.fake_engines(embedder, reranker), parse_query("car"), SearchRequest())
    assert any("automobile" in passage for _, passages in reranker.calls for passage in passages)
    # The snippet comes from that chunk, too, although it has no word of the query.
    assert answer.hits[0].document.path == "a.md"
    assert answer.hits[0].passage.start_line > 100


def test_10_vectors_of_another_model_are_never_compared(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Kiwi\n\nripe kiwi\n")
    old, new = (fakes.HashingEmbedder(fingerprint=digit * 16) for digit in "ab")
    with open_writer(tmp_path / "index.sqlite") as writer:
        collection = Collection("docs", tmp_path)
        writer.mirror_config([collection], None, "digest")
        update_collection(writer, collection)
        embed_pending(writer, old)
    vector = np.asarray(old.embed_queries(["kiwi"])[0], dtype=np.float32)
    with open_reader(tmp_path / "index.sqlite") as reader:
        from qmd.records import Scope

        assert reader.search_dense(vector, 5, Scope(), old.fingerprint)
        assert not reader.search_dense(vector, 5, Scope(), new.fingerprint)


def test_11_percent_encoded_addresses_are_resolved(world: World) -> None:
    world.collection("docs", {"we ird/c & d.md": "# Kiwi\n"})
    for reference in ("qmd://docs/we%20ird/c%20%26%20d.md", "qmd://docs/we ird/c & d.md"):
        assert "1: # Kiwi" in world.ok("get", reference).out


def test_12_the_end_of_a_name_is_no_name(world: World) -> None:
    world.collection("docs", {"SYNTAX.md": "# Syntax\n", "sub/SALES.md": "# Sales\n"})
    done = world.run("get", "TAX.md")
    assert (done.status, done.out) == (3, "")
    assert "Document not found: TAX.md" in done.err
    assert "# Sales" in world.ok("get", "SALES.md").out


@pytest.mark.parametrize("name", ["decade", "facade", "c0ffee"])
def test_12_a_name_of_hex_letters_is_a_path_before_it_is_a_docid(world: World, name: str) -> None:
    world.collection("docs", {name: "# Kiwi\n"}, "--mask", "**/*")
    assert "1: # Kiwi" in world.ok("get", name).out
    assert "1: # Kiwi" in world.ok("get", f"qmd://docs/{name}").out


def colliding_texts() -> tuple[str, str]:
    """Return two texts whose hashes begin with the same six digits."""
    seen: dict[str, str] = {}
    for number in count():
        text = f"# Kiwi {number}\n"
        key = hashlib.sha256(text.encode()).hexdigest()[:6]
        if key in seen:
            return seen[key], text
        seen[key] = text
    raise AssertionError


def test_13_a_docid_that_two_texts_share_is_refused_with_both_named(world: World) -> None:
    one, two = colliding_texts()
    world.collection("docs", {"one.md": one, "two.md": two})
    docid = f"#{hashlib.sha256(one.encode()).hexdigest()[:6]}"
    done = world.run("get", docid)
    assert (done.status, done.out) == (2, "")
    assert "qmd://docs/one.md" in done.err
    assert "qmd://docs/two.md" in done.err
    longer = hashlib.sha256(two.encode()).hexdigest()[:16]
    assert two.strip() in world.ok("get", f"#{longer}").out


def test_14_a_context_ends_at_its_folder(world: World) -> None:
    world.collection("docs", {"sub/a.md": "# Kiwi\n", "subway/b.md": "# Kiwi\n"})
    world.ok("context", "add", "qmd://docs/sub", "Only of sub")
    contexts = {row["path"]: row.get("context") for row in world.ok("search", "kiwi", "--json").json}
    assert contexts == {"sub/a.md": "Only of sub", "subway/b.md": None}


@pytest.mark.parametrize("written", ["sub", "/sub", "/sub/"])
def test_14_a_context_is_removed_by_either_spelling(world: World, written: str) -> None:
    folder = world.write("docs", {"sub/a.md": "# Kiwi\n"})
    world.config_file.parent.mkdir(parents=True)
    entry = f"    path: {folder}\n    pattern: '**/*.md'\n    context:\n      \"{written}\": Note\n"
    world.config_file.write_text(f"collections:\n  docs:\n{entry}")
    world.ok("context", "rm", "qmd://docs/sub")
    assert "Note" not in world.config_file.read_text()


def test_15_a_removed_collection_leaves_no_documents_behind(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    world.collection("more", {"b.md": "# Kiwi\n\ntwo\n"})
    world.ok("collection", "remove", "docs")
    assert [row["file"] for row in world.ok("search", "kiwi", "--json").json] == ["qmd://more/b.md"]
    with sqlite3.connect(f"file:{world.database}?mode=ro", uri=True) as foreign:
        assert foreign.execute("SELECT collection FROM documents").fetchall() == [("more",)]
    foreign.close()


def test_15_a_renamed_collection_takes_its_documents_along(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    assert "✓ Renamed collection 'docs' to 'notes'" in world.ok("collection", "rename", "docs", "notes").out
    assert [row["file"] for row in world.ok("search", "kiwi", "--json").json] == ["qmd://notes/a.md"]
    assert "0 new, 0 updated, 1 unchanged, 0 removed" in world.ok("update").out


def test_15_changes_to_a_collection_keep_its_other_keys(world: World) -> None:
    folder = world.write("docs", {"a.md": "# Kiwi\n", "drafts/b.md": "# Kiwi\n"})
    world.config_file.parent.mkdir(parents=True)
    entry = f"    path: {folder}  # mine\n    ignore: ['drafts/**']\n"
    world.config_file.write_text(f"# my notes\ncollections:\n  docs:\n{entry}")
    world.ok("context", "add", "qmd://docs/", "All of it")
    world.ok("collection", "update-cmd", "docs", "true")
    world.ok("collection", "rename", "docs", "notes")
    text = world.config_file.read_text()
    assert "# my notes" in text
    assert "# mine" in text
    assert "drafts/**" in text
    world.ok("update")
    assert [row["path"] for row in world.ok("search", "kiwi", "--json").json] == ["a.md"]


def test_16_a_list_in_which_nothing_resolves_is_a_failure(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    done = world.run("multi-get", "nope.md,gone.md", "--json")
    assert done.status != 0
    assert done.err.count("File not found") == 2


def test_16_documents_of_one_name_in_two_collections_are_distinct(world: World) -> None:
    world.collection("big", {"1.md": "# One\n"})
    world.collection("huge", {"1.md": "# Eins\n"})
    rows = world.ok("multi-get", "{big,huge}/1.md", "--json").json
    assert [row["file"] for row in rows] == ["qmd://big/1.md", "qmd://huge/1.md"]
    for row in rows:
        assert row["body"] in world.ok("get", row["file"]).out


def test_17_vsearch_with_a_minimum_of_zero_shows_everything(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n\nA fruit.\n", "b.md": "# Concrete\n\nHow bridges are built.\n"})
    world.ok("embed")
    assert len(world.ok("vsearch", "kiwi fruit", "--min-score", "0", "--json").json) == 2
    assert len(world.ok("vsearch", "kiwi fruit", "--min-score", "0.5", "--json").json) == 1


@pytest.mark.parametrize("value", ["0", "many"])
def test_17_a_limit_of_zero_or_of_words_is_reported(world: World, value: str) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    done = world.run("search", "kiwi", "-n", value)
    assert (done.status, done.out) == (2, "")
    assert f"-n '{value}' is not a whole number of at least 1" in done.err


def test_18_bench_reports_what_failed_and_counts_it_nowhere(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    queries = [
        {"id": "good", "query": "lex: kiwi", "expected_files": ["a.md"], "expected_in_top_k": 1},
        {"id": "bad", "query": 'lex: "kiwi', "expected_files": ["a.md"], "expected_in_top_k": 1},
    ]
    (world.home / "fixture.json").write_text(json.dumps({"queries": queries}))
    done = world.run("bench", "fixture.json", "--json")
    assert done.status == 1
    report = done.json
    assert report["summary"]["bm25"]["avg_mrr"] == 1
    assert "failed" in done.err
    assert "unmatched double quote" in report["results"][1]["backends"]["bm25"]["error"]
    assert report["timestamp"].startswith("20")
    assert report["timestamp"].count(":") == 2


def test_18_bench_does_not_take_one_name_for_the_end_of_another() -> None:
    assert same_file("a.md", "qmd://docs/sub/A.md")
    assert not same_file("a.md", "qmd://docs/aaa.md")
    assert not same_file("aaa.md", "a.md")


def test_19_scores_of_a_tiny_collection_are_no_zeros(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n\nripe kiwi\n", "b.md": "# Pear\n\nkiwi and pear\n"})
    rows = world.ok("search", "kiwi", "--json").json
    assert [row["path"] for row in rows] == ["a.md", "b.md"]
    assert all(row["score"] >= 0.4 for row in rows)


@pytest.mark.parametrize("n_others", [0, 3, 300])
def test_19_a_minimum_score_works_in_collections_of_any_size(world: World, n_others: int) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n\nHow to tell that a kiwi is ripe.\n"})
    others = {f"{n}.md": f"# Bridge {n}\n\nConcrete and steel, part {n}; ripe for repair.\n" for n in range(n_others)}
    world.write("more", others | {"x.txt": ""})
    world.ok("collection", "add", str(world.home / "more"))
    rows = world.ok("search", "ripe kiwi", "--min-score", "0.5", "--json").json
    assert [row["path"] for row in rows] == ["a.md"]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [("ana@example.org", "mail.md"), ("foo/bar", "path.md"), ("C++", "cpp.md"), ("node.js", "node.md")],
)
def test_20_words_with_punctuation_inside_are_found(world: World, query: str, wanted: str) -> None:
    world.collection(
        "docs",
        {
            "mail.md": "# Contact\n\nWrite to ana@example.org today.\n",
            "path.md": "# Paths\n\nThe folder foo/bar contains it.\n",
            "cpp.md": "# Languages\n\nWritten in C++ for speed.\n",
            "node.md": "# Run-time\n\nIt runs on node.js only.\n",
            "cat.md": "# Cats\n\nCats can climb, carry and catch.\n",
        },
    )
    assert [row["path"] for row in world.ok("search", query, "--json").json][:1] == [wanted]


def test_20_a_language_name_does_not_match_every_word_of_its_letter(world: World) -> None:
    world.collection("docs", {"cat.md": "# Cats\n\nCats can climb, carry and catch.\n"})
    assert world.ok("search", "C++", "--json").json == []


def test_21_a_question_needs_not_all_of_its_words(world: World) -> None:
    world.collection(
        "docs",
        {
            "deploy.md": "# Deploy runbook\n\nRoll back with the previous image tag.\n",
            "garden.md": "# Garden\n\nTomatoes need sun.\n",
        },
    )
    rows = world.ok("search", "how do I roll back a broken production release?", "--json").json
    assert [row["path"] for row in rows][:1] == ["deploy.md"]


def test_22_removing_a_collection_leaves_texts_that_others_share(world: World) -> None:
    same = {"a.md": "# Kiwi\n\nthe same text\n"}
    world.collection("docs", same)
    other = world.collection("more", {**same, "b.md": "# Pear\n"})
    world.ok("collection", "remove", "docs")
    assert "the same text" in world.ok("get", "qmd://more/a.md").out
    # A document of the other collection that is missing for now must come back whole.
    (other / "a.md").unlink()
    world.ok("update")
    world.write("more", same)
    world.ok("update")
    assert [row["file"] for row in world.ok("search", "kiwi", "--json").json] == ["qmd://more/a.md"]


def untrusted_project(world: World, monkeypatch: pytest.MonkeyPatch, extra: str = "") -> Path:
    """Create a checkout whose own configuration reads a folder outside it and runs a command."""
    world.write("private", {"secret.md": "# Kiwi secret\n"})
    project = world.write("project", {"docs/a.md": "# Kiwi\n"})
    entries = "  docs:\n    path: docs\n    update: touch hooked\n  out:\n    path: ../private\n"
    world.write("project/.qmd", {"index.yml": f"collections:\n{entries}{extra}"})
    monkeypatch.chdir(project)
    return project


def names(world: World) -> list[str]:
    return [row["name"] for row in world.ok("status", "--json").json["collections"]]


def test_23_a_checkout_reads_only_itself_and_runs_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project = untrusted_project(world, monkeypatch, "models: {embed: 'hf:evil/x'}\n")
    done = world.ok("update")
    assert "Skipping collection 'out'" in done.err and "outside this project" in done.err
    assert "qmd trust" in done.err
    assert not (project / "docs" / "hooked").exists()
    assert [row["path"] for row in world.ok("search", "kiwi", "--json").json] == ["a.md"]


def test_23_a_hand_edit_is_not_taken_over_by_the_next_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project = world.write("project", {"docs/a.md": "# Kiwi\n"})
    world.write("project/.qmd", {"index.yml": "collections:\n  docs:\n    path: docs\n"})
    monkeypatch.chdir(project)
    world.ok("update")
    untrusted_project(world, monkeypatch)
    world.ok("search", "kiwi", "--json")
    assert names(world) == ["docs"]
    world.ok("trust")
    assert names(world) == ["docs", "out"]


def test_23_losing_trust_stops_reading_but_drops_no_documents(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    project = untrusted_project(world, monkeypatch)
    world.ok("trust")
    world.ok("update")
    assert len(world.ok("search", "kiwi", "--json").json) == 2
    # Any other gated item changes the set that was trusted.
    file = project / ".qmd" / "index.yml"
    file.write_text(file.read_text().replace("touch hooked", "touch other"))
    world.ok("update")
    assert [row["path"] for row in world.ok("search", "kiwi", "--json").json] == ["a.md"]
    world.ok("trust")
    assert len(world.ok("search", "kiwi", "--json").json) == 2


def test_23_revoked_trust_takes_the_outside_out_of_searches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    untrusted_project(world, monkeypatch)
    world.ok("trust")
    world.ok("update")
    world.ok("trust", "revoke")
    assert [row["path"] for row in world.ok("search", "kiwi", "--json").json] == ["a.md"]


@pytest.mark.parametrize(
    "query", ['lex: "kiwi', "lex: kiwi\nplain", "vec: kiwi -pear", "intent: alone", "lex:", "expand:\nlex: x"]
)
def test_26_a_bad_query_document_is_one_line_of_error(world: World, query: str) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    done = world.run("query", query)
    assert (done.status, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert done.err.startswith("error: ")


def test_26_a_bad_chunk_strategy_is_refused_by_the_commands_that_have_one(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    assert world.run("query", "kiwi", "--chunk-strategy", "magic").status == 2
    assert world.ok("status", "--chunk-strategy", "magic").status == 0


@pytest.mark.parametrize("command", [("status",), ("search", "kiwi"), ("ls",), ("get", "a.md"), ("collection", "list")])
def test_27_commands_that_read_leave_the_configuration_alone(
    world: World, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    world.config_file.write_text("# mine\n" + world.config_file.read_text())
    before = world.config_file.read_bytes()
    monkeypatch.setenv("QMD_EMBED_MODEL", "built-in")
    world.ok(*command)
    assert world.config_file.read_bytes() == before


def test_27_commands_that_read_make_no_configuration(world: World) -> None:
    world.ok("status")
    world.ok("ls")
    world.run("search", "kiwi")
    assert not world.config_file.exists()
    assert not world.database.exists()


def test_34_a_hanging_update_command_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    world.collection("more", {"b.md": "# Pear\n"})
    world.ok("collection", "update-cmd", "docs", "echo begun; sleep 300")
    world.write("more", {"c.md": "# Plum\n"})
    monkeypatch.setenv("QMD_HOOK_TIMEOUT", "1")
    done = world.run("update")
    assert done.status == 124
    assert "    begun" in done.out
    assert "was ended after 1 s" in done.err
    # The others are updated all the same.
    assert "Indexed: 1 new" in done.out


def test_34_a_failing_update_command_does_not_stop_the_other_collections(world: World) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    world.collection("more", {"b.md": "# Pear\n"})
    world.ok("collection", "update-cmd", "docs", "exit 7")
    world.write("more", {"c.md": "# Plum\n"})
    done = world.run("update")
    assert done.status == 7
    assert "✗ Update command failed with exit code 7" in done.out
    assert "Indexed: 1 new" in done.out


def test_35_a_binary_file_under_the_mask_is_skipped_with_a_message(world: World) -> None:
    folder = world.write("docs", {"a.md": "# Kiwi\n"})
    (folder / "b.md").write_bytes(bytes(range(256)) * 64)
    done = world.ok("collection", "add", str(folder))
    assert "Indexed: 1 new" in done.out
    assert "b.md" in done.err


@pytest.mark.parametrize("option", ["--colection", "--jsn", "--zork"])
def test_36_an_unknown_option_is_an_error_and_not_ignored(world: World, option: str) -> None:
    world.collection("docs", {"a.md": "# Kiwi\n"})
    done = world.run("search", "kiwi", option)
    assert (done.status, done.out) == (2, "")
    assert f"unknown option '{option}'" in done.err
