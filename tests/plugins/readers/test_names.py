"""Pictures and other files of which only the name is indexed."""

import json
from pathlib import Path

import pytest

from tests.program import Qmd, write_notes


def test_a_picture_is_found_by_its_name_and_by_links(qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    for variable in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "n"
    note = "# Tax\n\n![[invoice-2024.png|400]] ![floor plan](pics/img_01.PNG) [[film.mp4]] ![[gone.png]] [[none]]\n"
    write_notes(folder, {"tax.md": note, "pics/invoice-2024.png": "\0", "pics/img_01.PNG": "", "b.txt": ""})
    (folder / "pics" / "invoice-2024.png").write_bytes(b"\x89PNG\r\n")
    # Larger than any file that is read.
    with (folder / "film.mp4").open("wb") as film:
        film.truncate(50_000_000)
    indexed = qmd("index", str(folder), "--glob", "**/*.{md,png,PNG,mp4}", "--no-embed")
    assert ("4 notes" in indexed.out, indexed.err) == (True, "")
    assert json.loads(qmd("search", "invoice 2024", "--json").out)[0]["file"] == "qmd://n/pics/invoice-2024.png"
    assert "img_01.PNG" in qmd("search", "floor plan", "--files").out
    assert "1: pics/invoice-2024.png" in qmd("get", "invoice-2024.png").out
    assert "1: film.mp4" in qmd("get", "[[film.mp4]]").out
    found = json.loads(qmd("links", "tax.md", "--json").out)
    assert [one["file"].rpartition("/")[2] for one in found["outgoing"]] == [
        "invoice-2024.png", "img_01.PNG", "film.mp4"
    ]  # fmt: skip
    assert [one["target"] for one in found["unresolved"]] == ["none"]
    assert "tax.md:3" in qmd("links", "invoice-2024.png").out
    assert "invoice-2024.png" in qmd("open", "invoice-2024.png", "--print").out
    # Files without a picture inside are not passed to the desktop.
    assert "no program for 'img_01.PNG'" in qmd("open", "img_01.PNG", "--print").err
    assert "0 updated, 4 unchanged" in qmd("update").out
