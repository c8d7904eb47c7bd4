"""Front matter: typed values, forms with and without the YAML parser, and text that is no front matter."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qmd.records import Document, MetadataValue
from tests.parsing import parse_document


def parse(text: str) -> Document:
    return parse_document("x.md", text.encode("utf-8"))


def value(raw: str) -> MetadataValue | None:
    return parse(f"---\nkey: {raw}\n---\n").metadata.get("key")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("plain words", "plain words"),
        ('"quoted: yes"', "quoted: yes"),
        ("'it''s'", "it's"),
        ("42", 42),
        ("-3.5", -3.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("007", "007"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00"),
        ("05/08/2018", "05/08/2018"),
        ("a: b", "a: b"),
        ("value # comment", "value"),
        ("C#", "C#"),
        ("[a, 'b, c', \"d\"]", ("a", "b, c", "d")),
        ('["x [C++]", "y"]', ("x [C++]", "y")),
        ("[]", ()),
        ("[1, true]", ("1", "true")),
        ('"tab\\tx"', "tab\tx"),
        ("[[a, b], c]", ('["a", "b"]', "c")),
        ("{a: 1}", None),
    ],
)
def test_values_are_typed(raw: str, expected: MetadataValue | None) -> None:
    assert value(raw) == expected
    assert type(value(raw)) is type(expected)


def test_block_lists_are_tuples_and_keys_lower_case() -> None:
    document = parse("---\nTags:\n  - a\n  - 'b c'\nAliases:\n- x\nempty:\nlast: 1\n---\nbody")
    assert document.metadata == {"tags": ("a", "b c"), "aliases": ("x",), "last": 1}


def test_nested_keys_are_dotted() -> None:
    document = parse("---\nauthor:\n  name: Ann\n  links:\n    - a\n---\n")
    assert document.metadata == {"author.name": "Ann", "author.links": ("a",)}


def test_multi_line_scalars_are_read() -> None:
    assert parse("---\nsummary: >\n  one\n  two\n---\n").metadata["summary"] == "one two"


def test_dates_inside_nested_values_are_iso_strings() -> None:
    assert parse("---\na:\n  b: 2024-05-01\n---\n").metadata == {"a.b": "2024-05-01"}


def test_toml_front_matter() -> None:
    document = parse('+++\ntitle = "T"\ndate = 2024-05-01\n[extra]\nx = 1\n+++\nbody')
    assert document.metadata == {"title": "T", "date": "2024-05-01", "extra.x": 1}
    assert document.text[document.body_offset :] == "body"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_body_starts_after_the_closing_line(ending: str) -> None:
    document = parse(ending.join(["---", "title: T", "---", "body"]))
    assert document.metadata == {"title": "T"}
    assert document.text[document.body_offset :] == "body"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alias:: PA, [[Moon, far]]", {"alias": ("PA", "Moon, far")}),
        ("tags:: work", {"tags": ("work",)}),
        ("Tags:: #later, #[[a b]], , deep/er", {"tags": ("later", "a b", "deep/er")}),
        ("type:: [[Project]]", {"type": "Project"}),
        ("see:: [[A]], [[B]]", {"see": ("A", "B")}),
        ("note:: about [[A]], and B", {"note": "about [[A]], and B"}),
        (
            "rank:: 3\nzero:: 0\nnone:: null\nempty::\n  due:: 2024-03-01\n\nlate:: no",
            {"rank": 3, "zero": 0, "none": "null", "due": "2024-03-01"},
        ),
        ("- title:: A page", {"title": "A page"}),
        ("std::cout << x:: y", {}),
        ("A line of prose.\nkey:: value", {}),
    ],
)
def test_page_properties_of_logseq_are_metadata_and_stay_prose(line: str, said: dict[str, MetadataValue]) -> None:
    document = parse(f"{line}\n\n- block\n")
    assert (document.metadata, document.body_offset, document.warnings) == (said, 0, ())


def test_an_empty_block_is_front_matter() -> None:
    assert parse("---\n---\nbody").body_offset == 8


@pytest.mark.parametrize("block", ["a: [1, 2", 'a: "open', "a: *x", "a:\n\t- b\n  c"])
def test_a_malformed_block_is_a_warning_and_no_prose(block: str) -> None:
    document = parse(f"---\n{block}\n---\nbody")
    assert document.metadata == {}
    assert document.text[document.body_offset :] == "body"
    assert document.warnings[0].startswith("front matter cannot be read")


@pytest.mark.parametrize(
    "text", ["---\nno closing\n", "---\n\nprose, then a rule\n\n---\nmore", "----\na: 1\n----\n", " ---\na: 1\n---\n"]
)
def test_what_is_no_front_matter(text: str) -> None:
    document = parse(text)
    assert (document.metadata, document.body_offset, document.warnings) == ({}, 0, ())


@example("a:\n:")
@given(st.text(alphabet="ab:-[]{}'\"#&*!|>%@\n\t ,0.~", max_size=40))
def test_no_block_breaks_the_reader(block: str) -> None:
    document = parse(f"---\n{block}\n---\nbody")
    assert document.text.endswith("body")
    for item in document.metadata.values():
        assert isinstance(item, (str, int, float, bool, tuple))


_WORD = st.from_regex(r"[a-z][a-z ]{0,6}[a-z]", fullmatch=True)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True),
        st.one_of(st.booleans(), st.integers(-999, 999), st.lists(_WORD, min_size=1)),
        max_size=5,
    )
)
def test_the_hand_reader_agrees_with_a_yaml_writer(metadata: dict[str, bool | int | list[str]]) -> None:
    from io import StringIO

    from ruamel.yaml import YAML

    out = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.width = 100_000  # where the parser folds a line at two blanks, the reader here finds one
    yaml.dump(metadata, out)
    words = {"null", "true", "false"}
    if any(isinstance(v, list) and words & set(v) for v in metadata.values()) or not metadata:
        return
    expected = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata.items()}
    assert parse(f"---\n{out.getvalue()}---\n").metadata == expected


@pytest.mark.parametrize(
    ("value", "warns"), [("{{title}}", False), ("<% tp.date.now() %>", False), ("@ana", True), ("{{", True)]
)
def test_front_matter_of_a_template_needs_no_repair(value: str, warns: bool) -> None:
    document = parse(f"---\ntitle: {value}\nlist: [{value}\n---\nbody\n")
    assert (document.metadata, bool(document.warnings)) == ({}, warns)
