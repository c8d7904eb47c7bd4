"""Names of notes in comparable form, and targets of links."""

import pytest

from qmd.analysis.note_names import NamedNote, choose_target, link_key, name_key, path_key
from qmd.records import NameKind

PATHS = ("Note.md", "work/Note.md", "work/deep/Note.md", "home/Note.md")


def named(*paths: str, kind: NameKind = "file") -> list[NamedNote]:
    return [NamedNote(number, path_key(path), kind) for number, path in enumerate(paths)]


@pytest.mark.parametrize(
    ("target", "source", "path"),
    [
        ("Note", "other/a.md", "Note.md"),
        ("Note", "work/a.md", "work/Note.md"),
        ("note.md", "home/a.md", "home/Note.md"),
        ("work/Note", "a.md", "work/Note.md"),
        ("deep/Note", "work/a.md", "work/deep/Note.md"),
        ("deep/Note", "home/a.md", "work/deep/Note.md"),
        ("../Note.md", "work/deep/a.md", "work/Note.md"),
        ("./Note.md", "home/a.md", "home/Note.md"),
        ("/home/Note", "work/a.md", "home/Note.md"),
        ("vault/work/Note", "a.md", "work/Note.md"),
    ],
)
def test_of_notes_of_one_name_path_then_folder_then_length_decide(target: str, source: str, path: str) -> None:
    chosen = choose_target(target, source, named(*PATHS))
    assert chosen is not None
    assert PATHS[chosen] == path


@pytest.mark.parametrize("target", ["elsewhere/Note", "../../Other/Note.md"])
def test_a_path_that_leads_nowhere_means_no_note(target: str) -> None:
    assert choose_target(target, "work/a.md", named(*PATHS)) is None


def test_a_file_goes_before_a_title_and_a_title_before_an_alias() -> None:
    alias, title, file = NamedNote(1, "a", "alias"), NamedNote(2, "b", "title"), NamedNote(3, "far/away/c", "file")
    assert choose_target("x", "s.md", [alias, title, file]) == 3
    assert choose_target("x", "s.md", [alias, title]) == 2
    assert choose_target("x", "s.md", []) is None


@pytest.mark.parametrize(
    ("target", "key"),
    [("folder/My-Note.md", "my note"), ("Node.js", "node js"), ("", ""), ("C++", "c++"), ("folder/", "folder")],
)
def test_the_name_that_a_target_ends_with_is_written_as_names_are(target: str, key: str) -> None:
    assert link_key(target) == key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("Road map", "road_map"), ("Road map", "Road-Map!"), ("🗂️ hub", "Hub"), ("#reading", "reading"),
        ("Straße", "STRASSE"), ("Simpson’s paradox", "simpson's paradox"), ("ﬁle", "file"), ("Café", "cafe"),
    ],
)  # fmt: skip
def test_names_are_compared_without_case_and_signs(left: str, right: str) -> None:
    assert name_key(left) == name_key(right)


@pytest.mark.parametrize(("left", "right"), [("C", "C++"), ("C", "C#"), ("🗂️", "📝"), ("@x", "x")])
def test_other_names_stay_apart(left: str, right: str) -> None:
    assert name_key(left) != name_key(right)


@pytest.mark.parametrize("code", range(128))
def test_a_sign_of_ascii_is_read_alike_alone_and_among_others(code: int) -> None:
    assert name_key(f"A{chr(code)}b é") == f"{name_key(f'A{chr(code)}b')} e"
