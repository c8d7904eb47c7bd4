import csv
import io
import json
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from qmd.escapes import one_line, visible
from qmd.records import Contribution, Explanation, Hit, Passage, Query, SearchResponse, StoredDocument, SubQuery
from qmd.render.formats import FORMATS, HitOptions, display_query, render_hits
from qmd.render.text import CLOSEST_CHARACTERS, worth_showing

DOCUMENT = StoredDocument(1, "docs", "a.md", "Alpha Doc", "b9a671" + "0" * 58, "2026-01-01T00:00:00.000Z", 99)
PASSAGE = Passage(
    "The rate limiter uses a sliding window.\nAuth token flow\n\n## Section Two",
    3,
    6,
    line=4,
    lines_before=2,
    lines_after=2,
)
HIT = Hit(DOCUMENT, 0.5, PASSAGE, "Global\n\nRoot ctx", body="one\ntwo")
SNIPPET = f"@@ -3,4 @@ (2 before, 2 after)\n{PASSAGE.text}"


def response(*hits: Hit, text: str = "auth") -> SearchResponse:
    return SearchResponse(Query(text), hits, "good")


def render(format: str, *hits: Hit, text: str = "auth", **options: object) -> str:
    return render_hits(response(*hits, text=text), format, HitOptions(**options))  # type: ignore[arg-type]


def test_json_rows_have_the_documented_keys_in_order_and_new_keys_last() -> None:
    (row,) = json.loads(render("json", HIT))
    assert list(row)[:7] == ["docid", "score", "file", "line", "title", "context", "snippet"]
    assert list(row)[7:] == ["collection", "path", "uri", "start_line", "end_line", "heading_trail", "passages"]
    assert row["snippet"] == SNIPPET
    assert (row["docid"], row["file"], row["line"]) == ("#b9a671", "qmd://docs/a.md", 4)


def test_readers_get_every_passage_and_programs_with_little_room_the_best_one() -> None:
    filled = (
        replace(HIT.passage, text="one\ntwo", start_line=1, end_line=2),
        replace(HIT.passage, text="nine", start_line=9, end_line=9),
    )
    hit = replace(HIT, passages=filled)
    assert render("cli", hit).endswith("\n\none\ntwo\n…:9-9\nnine\n")
    for format in ("md", "xml"):
        text = render(format, hit)
        assert "@@ -1,2 @@" in text and "one" in text
        assert "@@ -9,1 @@" in text and "nine" in text
    assert "nine" not in render("csv", hit)
    (row,) = json.loads(render("json", hit))
    assert row["snippet"] == SNIPPET
    assert row["passages"] == [
        {"start_line": 1, "end_line": 2, "text": "one\ntwo"},
        {"start_line": 9, "end_line": 9, "text": "nine"},
    ]


def test_the_date_of_a_note_is_the_last_key_and_stands_beside_its_name() -> None:
    dated = replace(HIT, document=replace(DOCUMENT, date="2024-02-02"))
    (row,) = json.loads(render("json", dated))
    assert list(row)[-1] == "date"
    assert row["date"] == "2024-02-02"
    assert render("cli", dated).splitlines()[0] == "qmd://docs/a.md:4 #b9a671  2024-02-02"
    assert "2024" not in render("csv", dated).splitlines()[0]


def test_the_headings_above_a_passage_are_shown() -> None:
    hit = replace(HIT, passage=replace(HIT.passage, heading_trail=("Install", "Linux")))
    assert json.loads(render("json", hit))[0]["heading_trail"] == ["Install", "Linux"]
    assert "Section: Install › Linux\n" in render("cli", hit)
    assert "Section:" not in render("cli", HIT)


@pytest.mark.parametrize(("relevance", "shown"), [(1.0, "1"), (0.125, "0.13"), (0.0, "0"), (0.994, "0.99")])
def test_json_scores_round_half_up_and_print_whole_numbers_bare(relevance: float, shown: str) -> None:
    assert f'"score": {shown},' in render("json", replace(HIT, relevance=relevance))


def test_copies_are_named_in_a_row_of_their_own() -> None:
    copied = replace(HIT, also_in=("qmd://old/a.md", "qmd://b/c d.md"))
    assert json.loads(render("json", copied))[0]["also_in"] == ["qmd://old/a.md", "qmd://b/c d.md"]
    assert "also_in" not in json.loads(render("json", HIT))[0]
    assert "**also in:** `qmd://old/a.md`\n" in render("md", copied)
    shown = render("cli", copied, index_name="two")
    assert "%\nalso in qmd://old/a.md?index=two\nalso in qmd://b/c d.md?index=two\n\nThe rate" in shown


def test_an_absent_context_is_no_json_key() -> None:
    assert "context" not in json.loads(render("json", replace(HIT, context=None)))[0]


def test_full_shows_the_body_instead_of_the_snippet() -> None:
    (row,) = json.loads(render("json", HIT, full=True))
    assert row["body"] == "one\ntwo"
    assert "snippet" not in row


def test_json_snippets_end_after_300_characters_and_others_after_500() -> None:
    long = replace(HIT, passage=replace(PASSAGE, text="x" * 900))
    assert json.loads(render("json", long))[0]["snippet"].split("\n")[1] == "x" * 297 + "..."
    assert "x" * 497 + "..." in render("csv", long)


def test_line_numbers_are_those_of_the_source_and_skip_the_header() -> None:
    snippet = json.loads(render("json", HIT, line_numbers=True))[0]["snippet"]
    assert snippet.split("\n")[:3] == [
        "@@ -3,4 @@ (2 before, 2 after)",
        "3: The rate limiter uses a sliding window.",
        "4: Auth token flow",
    ]


def test_csv_is_read_back_by_a_csv_reader() -> None:
    hit = replace(HIT, document=replace(DOCUMENT, title='Beta, "B"'))
    header, row = csv.reader(io.StringIO(render("csv", hit)))
    assert header == ["docid", "score", "file", "title", "context", "line", "snippet"]
    assert row == ["#b9a671", "0.5000", "qmd://docs/a.md", 'Beta, "B"', "Global Root ctx", "4", SNIPPET]


def test_files_lines_quote_the_context() -> None:
    assert render("files", replace(HIT, context="Root ctx")) == '#b9a671,0.50,qmd://docs/a.md,"Root ctx"\n'


def test_markdown_rows_follow_the_documented_shape() -> None:
    assert render("md", replace(HIT, context="ctx")) == (
        f"---\n# Alpha Doc\n**file:** `qmd://docs/a.md`\n**docid:** `#b9a671`\n**context:** ctx\n\n{SNIPPET}\n\n"
    )


def test_cli_rows_name_the_line_only_when_a_query_word_is_literally_there() -> None:
    expected = f"qmd://docs/a.md:4 #b9a671\nTitle: Alpha Doc\nContext: ctx\nScore:  50%\n\n{PASSAGE.text}\n"
    assert render("cli", replace(HIT, context="ctx")) == expected
    assert render("cli", HIT, text="unrelated").startswith("qmd://docs/a.md #b9a671\n")


def test_cli_rows_stand_two_empty_lines_apart() -> None:
    assert "## Section Two\n\n\nqmd://docs/a.md" in render("cli", HIT, HIT)


def test_nothing_found_has_a_form_in_every_format() -> None:
    assert {name: render(name) for name in FORMATS} == {
        "cli": "No results found.\n",
        "json": "[]\n",
        "csv": "docid,score,file,title,context,line,snippet\n",
        "md": "",
        "xml": "<results></results>\n",
        "files": "",
        "grep": "",
    }


def test_a_named_index_is_part_of_the_address() -> None:
    assert json.loads(render("json", HIT, index_name="my notes"))[0]["file"] == "qmd://docs/a.md?index=my%20notes"


def test_a_path_on_disk_replaces_address_and_docid() -> None:
    paths = {"qmd://docs/a.md": "./docs/a.md"}
    (row,) = json.loads(render("json", HIT, disk_paths=paths))
    assert row["file"] == "./docs/a.md"
    assert "docid" not in row
    assert render("files", replace(HIT, context=None), disk_paths=paths) == "0.50,./docs/a.md\n"


def test_explain_keeps_the_known_keys() -> None:
    contributions = (Contribution("bm25", "original", "auth", 1, 0.4, 1.0, 0.03),)
    hit = replace(HIT, explanation=Explanation(contributions, 1, 0.03, None, 0.5, 0.5, 1, 0.5, {}, False))
    explain = json.loads(render("json", hit, explain=True))[0]["explain"]
    assert list(explain)[:5] == ["ftsScores", "vectorScores", "rrf", "rerankScore", "blendedScore"]
    assert explain["rrf"]["contributions"][0]["source"] == "fts"
    assert "\n│ words           rank 1    score   0.40   +0.03  auth\n" in render(
        "cli", hit, explain=True, explain_full=True
    )


def test_the_displayed_query_prefers_the_first_lexical_line() -> None:
    lines = (SubQuery("hyde", "h"), SubQuery("vec", "v"), SubQuery("lex", "l"))
    assert display_query(Query("raw", lines)) == "l"
    assert display_query(Query("raw", lines[:2])) == "v"
    assert display_query(Query("raw")) == "raw"


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20))
def test_xml_is_well_formed_whatever_the_text(title: str, body: str, path: str) -> None:
    hit = replace(HIT, document=replace(DOCUMENT, title=title, path=path), body=body, context=title)
    root = ET.fromstring(render("xml", hit, hit, full=True))
    assert [child.tag for child in root] == ["file", "file"]


@given(st.text(max_size=60), st.text(max_size=60))
def test_csv_rows_survive_any_text(title: str, body: str) -> None:
    hit = replace(HIT, document=replace(DOCUMENT, title=title), body=body)
    rows = list(csv.reader(io.StringIO(render("csv", hit, full=True), newline="")))
    assert len(rows) == 2
    assert (rows[1][3], rows[1][6]) == (one_line(title), visible(body))


def test_of_a_list_without_a_good_match_people_see_the_closest_two() -> None:
    response = SearchResponse(Query("x"), (replace(HIT, relevance=0.004),) * 3, "none")
    assert render_hits(response, "cli", HitOptions()).count("Title: ") == 2
    assert render_hits(response, "cli", HitOptions(shows_all=True)).count("Title: ") == 3
    assert len(json.loads(render_hits(response, "json", HitOptions()))) == 3


def test_of_a_long_passage_the_closest_show_the_lines_around_the_best_one() -> None:
    lines = [f"{number:03} {'word ' * 15}" for number in range(10, 20)]
    long = Passage("\n".join(lines), 10, 19, 14, lines_before=9, lines_after=81)
    [hit, _] = worth_showing(SearchResponse(Query("x"), (replace(HIT, passage=long),) * 2, "none")).hits
    shown = hit.passage
    assert "014 word" in shown.text
    assert len(shown.text) <= CLOSEST_CHARACTERS
    assert shown.text == "\n".join(lines[shown.start_line - 10 : shown.end_line - 9])
    assert (shown.lines_before, shown.lines_after) == (shown.start_line - 1, 100 - shown.end_line)
    [cut, _] = worth_showing(
        SearchResponse(Query("x"), (replace(HIT, passage=Passage("x" * 900, 1, 1, 1, 0, 0)),) * 2, "none")
    ).hits
    assert (len(cut.passage.text), cut.passage.end_line) == (CLOSEST_CHARACTERS, 1)
