"""Scripts, skills and imprecise callers collected from public repositories."""

import csv
import io
import json
import re
from xml.etree import ElementTree

import pytest

from tests.clients.conftest import Client, MakeClient


@pytest.fixture
def wiki(make_client: MakeClient) -> Client:
    client = make_client()
    client.ok("collection", "add", str(client.notes), "--name", "wiki")
    client.ok("embed")
    return client


def test_options_before_the_query(wiki: Client) -> None:
    rows = json.loads(wiki.ok("search", "--json", "--collection", "wiki", "pricing"))
    assert rows[0]["file"].startswith("qmd://wiki/")


def test_two_dashes_end_the_options(wiki: Client) -> None:
    rows = json.loads(wiki.ok("query", "-c", "wiki", "--json", "-n", "20", "--", "host names"))
    assert isinstance(rows, list)


def test_files_format_splits_on_commas(wiki: Client) -> None:
    lines = wiki.ok("query", "pricing", "--min-score", "0.05", "-n", "8", "--files").splitlines()
    assert lines
    for line in lines:
        assert re.match(r"^#[0-9a-f]{6},\d\.\d\d,qmd://wiki/.+", line)


def test_regular_expressions_over_the_human_output(wiki: Client) -> None:
    out = wiki.ok("query", "vec: what do customers pay", "-c", "wiki", "-n", "2")
    assert re.search(r"^qmd://wiki/(.+?)\.md", out, re.MULTILINE)
    assert re.search(r"Score:\s+(\d+)%", out)


def test_full_path_gives_files_that_exist(wiki: Client) -> None:
    out = wiki.ok("search", "tomatoes", "-c", "wiki", "-n", "10", "--full-path")
    shown = out.splitlines()[0]
    path = re.sub(r":\d+$", "", shown.split(" #")[0])
    assert (wiki.cwd / path).is_file()


@pytest.mark.parametrize("sloppy", [("-k", "3"), ("--top-k", "3"), ("--limit", "3")])
def test_sloppy_limits_are_warned_about_and_obeyed(wiki: Client, sloppy: tuple[str, str]) -> None:
    done = wiki.run("search", "the sliding window rate limiter pricing", "--json", *sloppy)
    assert done.returncode == 0
    assert 0 < len(json.loads(done.stdout)) <= 3
    assert sloppy[0] in done.stderr


def test_an_unknown_option_names_the_nearest(wiki: Client) -> None:
    done = wiki.run("search", "pricing", "--jsn")
    assert done.returncode != 0
    assert "unknown option" in done.stderr
    assert "--json" in done.stderr


def test_a_glued_limit(wiki: Client) -> None:
    assert len(json.loads(wiki.ok("search", "sliding window", "--json", "-n1"))) == 1


def test_csv_has_its_header_and_parses(wiki: Client) -> None:
    rows = list(csv.DictReader(io.StringIO(wiki.ok("search", "gardening", "--csv"))))
    assert list(rows[0]) == ["docid", "score", "file", "title", "context", "line", "snippet"]
    assert rows[0]["file"] == "qmd://wiki/we ird/c & d.md"


def test_xml_is_well_formed(wiki: Client) -> None:
    out = wiki.ok("search", "gardening", "--xml")
    root = ElementTree.fromstring(f"<r>{out}</r>" if not out.lstrip().startswith("<results") else out)
    assert any(e.get("name") == "qmd://wiki/we ird/c & d.md" for e in root.iter("file"))


def test_the_skill_flow_search_then_get_by_docid_and_lines(wiki: Client) -> None:
    row = json.loads(wiki.ok("search", "usage based bills", "--format", "json"))[0]
    out = wiki.ok("get", f"{row['docid']}:5:3")
    assert out.splitlines()[0] == f"{row['file']}  {row['docid']}"
    assert out.splitlines()[1:3] == ["---", ""]
    assert out.splitlines()[3].startswith("5: ")
    line = wiki.ok("get", "qmd://wiki/pricing.md", "--from", "1", "-l", "1", "--no-line-numbers")
    assert line.rstrip().endswith("# Pricing decision")


def test_multi_get_takes_globs_docids_and_lists(wiki: Client) -> None:
    assert [r["file"] for r in json.loads(wiki.ok("multi-get", "daily/*.md", "--json"))] == ["daily/2026-03-01.md"]
    rows = json.loads(wiki.ok("multi-get", "pricing.md, deploy.md", "--json"))
    assert [r["file"] for r in rows] == ["qmd://wiki/pricing.md", "qmd://wiki/deploy.md"]
    assert "2026-03-01" in wiki.ok("multi-get", "{daily,sub}/*.md", "--md")


def test_chinese_words_are_found(wiki: Client) -> None:
    rows = json.loads(wiki.ok("search", "数据库迁移", "--json"))
    assert [r["file"] for r in rows] == ["qmd://wiki/sub/日记.md"]


def test_version_probe(wiki: Client) -> None:
    assert re.match(r"^qmd \d+\.\d+\.\d+", wiki.ok("--version"))
