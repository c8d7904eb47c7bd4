"""Access to pictures in a collection's folder, only where notes may lie."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from qmd.errors import NotFoundError
from qmd.plugins.page.pictures import MAX_PICTURE_BYTES, read_picture
from qmd.records import Collection

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def notes(tmp_path: Path) -> Collection:
    """Folder with a picture in every kind of place."""
    folder = tmp_path / "notes"
    for place in (
        "img",
        "ignored",
        "private",
        "drafts",
        "out",
        "sub/deep",
        ".hidden",
        "node_modules/x",
        "build",
        "a b",
    ):
        (folder / place).mkdir(parents=True)
        (folder / place / "a.png").write_bytes(PNG)
    (folder / "package.json").write_text("{}", encoding="utf-8")
    (folder / ".gitignore").write_text("/ignored/\n*.secret.png\n", encoding="utf-8")
    (folder / "sub" / ".qmdignore").write_text("deep/\n", encoding="utf-8")
    (folder / "img" / "b.secret.png").write_bytes(PNG)
    return Collection("notes", folder, pattern="**/*.md,!out/**", ignore=("private/**", "drafts/"))


def is_given(collection: Collection, source: str) -> bool:
    try:
        return read_picture([collection], "notes", "plan.md", source).content == PNG
    except NotFoundError:
        return False


@pytest.mark.parametrize("source", ["img/a.png", "a b/a.png", "ignored/../img/a.png"])
def test_a_picture_is_given_out_though_the_mask_selects_none(notes: Collection, source: str) -> None:
    assert is_given(notes, source)


@pytest.mark.parametrize(
    "source",
    [
        "ignored/a.png",
        "img/b.secret.png",
        "private/a.png",
        "drafts/a.png",
        "out/a.png",
        "sub/deep/a.png",
        ".hidden/a.png",
        "node_modules/x/a.png",
        "build/a.png",
        "img/../ignored/a.png",
        "../notes/private/a.png",
        "img\0/a.png",
    ],
)
def test_no_picture_is_given_out_of_what_is_ignored_excluded_or_hidden(notes: Collection, source: str) -> None:
    assert not is_given(notes, source)


def test_what_the_collection_asks_for_all_the_same_is_given_out(notes: Collection) -> None:
    assert is_given(replace(notes, gitignore=False), "ignored/a.png")
    assert is_given(replace(notes, pattern="build/**/*.md"), "build/a.png")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_gives_out_what_may_be_seen_where_it_leads(notes: Collection) -> None:
    (notes.path / "seen.png").symlink_to(notes.path / "img" / "a.png")
    (notes.path / "album").symlink_to(notes.path / "img")
    (notes.path / "unseen.png").symlink_to(notes.path / "private" / "a.png")
    (notes.path / "vault").symlink_to(notes.path / "ignored")
    assert is_given(notes, "seen.png") and is_given(notes, "album/a.png")
    assert not is_given(notes, "unseen.png") and not is_given(notes, "vault/a.png")


def test_an_ignore_file_without_end_gives_out_nothing(notes: Collection) -> None:
    (notes.path / "img" / ".qmdignore").write_text("x\n" * 6000, encoding="utf-8")
    assert not is_given(notes, "img/a.png")
    assert is_given(notes, "a b/a.png")


def test_a_picture_is_given_out_up_to_a_size(notes: Collection) -> None:
    big = notes.path / "img" / "big.png"
    with big.open("wb") as file:
        file.truncate(MAX_PICTURE_BYTES)
    assert len(read_picture([notes], "notes", "plan.md", "img/big.png").content) == MAX_PICTURE_BYTES
    with big.open("ab") as file:
        file.write(b"x")
    with pytest.raises(NotFoundError):
        read_picture([notes], "notes", "plan.md", "img/big.png")
