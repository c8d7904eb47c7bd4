"""Notebooks and canvases: their text, and files made to break a reader."""

import json

import pytest

from qmd.errors import UnindexableFileError
from tests.parsing import parse_document

NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Yeast study\n", "See [[Bread]] #lab"], "attachments": {"a": 1}},
        {
            "cell_type": "code",
            "execution_count": None,
            "source": ["print(1)\n", "plot()"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["line\n"] * 50},
                {"data": {"image/png": "iVBORw0KGgo=", "text/plain": ["<Figure>"]}, "metadata": {}},
                {"ename": "ValueError", "evalue": "\x1b[31mtoo warm\x1b[0m", "traceback": ["x"]},
            ],
        },
        {"cell_type": "code", "source": "", "outputs": []},
        {"cell_type": "markdown", "source": "# Results"},
    ],
    "metadata": {"language_info": {"name": "R```", "version": "4"}, "kernelspec": {"name": "ir"}},
    "nbformat": 4,
}

CANVAS = {
    "nodes": [
        {"id": "1", "type": "file", "file": "Ref/Backups.md", "subpath": "#Restore", "x": 0, "y": 100.5},
        {"id": "2", "type": "text", "text": "# Plan\n\nBuy flour", "x": 0, "y": -20, "width": 10},
        {"id": "3", "type": "link", "url": "https://example.org", "x": 5, "y": 5},
        {"id": "4", "type": "group", "label": "Later", "x": 9, "y": 900},
        {"id": "5", "type": "file", "file": "x]]\n[[y|z.md", "x": 0, "y": 901},
    ],
    "edges": [{"id": "6", "fromNode": "1", "toNode": "2", "label": "needs"}, {"id": "7"}],
}


def test_a_notebook_is_its_cells_and_the_beginning_of_what_it_printed() -> None:
    document = parse_document("study.ipynb", json.dumps(NOTEBOOK).encode())
    printed = "line\n" * 30 + "…"
    assert document.text == (
        "###### cell1\n\n# Yeast study\nSee [[Bread]] #lab\n\n###### cell2\n\n```R\nprint(1)\nplot()\n```\n\n"
        f"```text\n{printed}\n```\n\n```text\n<Figure>\n```\n\n```text\nValueError: too warm\n```\n\n"
        "###### cell4\n\n# Results\n"
    )
    assert (document.title, document.metadata) == ("Yeast study", {"tags": ("lab",)})
    assert [link.target for link in document.links] == ["Bread"]


def test_a_canvas_is_its_cards_from_top_to_bottom() -> None:
    document = parse_document("plan.canvas", json.dumps(CANVAS).encode())
    assert document.text == (
        "# Plan\n\nBuy flour\n\n<https://example.org>\n\n[[Ref/Backups.md#Restore]]\n\n"
        "Later\n\n[[x     y z.md]]\n\nneeds\n"
    )
    assert (document.links[0].target, document.links[0].fragment) == ("Ref/Backups.md", "Restore")
    assert parse_document("new.canvas", b"").text == ""


@pytest.mark.parametrize(
    ("path", "raw"),
    [
        ("deep.ipynb", b'{"cells": [], "more": ' + b"[" * 1_000_000),
        ("deep.canvas", b'{"nodes": [{"style": ' + b'{"a":' * 500_000),
        ("list.ipynb", b"[]"),
        ("empty.ipynb", b"{}"),
        ("text.ipynb", b'{"cells": [{"source": {"a": 1}}]}'),
        ("half.ipynb", b'{"cells": ['),
        ("bytes.canvas", b"\xff\xfe\0\1"),
        ("half-letter.canvas", b'{"nodes": [{"text": "\\ud800"}]}'),
        ("far.canvas", b'{"nodes": [{"x": 1e999}]}'),
        ("digits.canvas", b'{"nodes": [{"x": ' + b"9" * 1_000_000 + b"}]}"),
    ],
)
def test_a_file_that_is_not_a_notebook_or_canvas_is_one_line_of_error(path: str, raw: bytes) -> None:
    with pytest.raises(UnindexableFileError) as caught:
        parse_document(path, raw)
    assert caught.value.message.startswith(f"'{path}' cannot be read as a ")
    assert "\n" not in caught.value.message and len(caught.value.message) < 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "raw", "size"),
    [
        ("cells.ipynb", b'{"cells": [' + b"{}," * 1_000_000 + b"{}]}", 0),
        ("cards.canvas", b'{"nodes": [' + b'{"text": "a"},' * 300_000 + b"{}]}", 900_000),
        ("marks.ipynb", b'{"cells": [{"cell_type": "code", "source": "' + b"`" * 9_000 + b'"}]}', 27_020),
        ("outputs.ipynb", b'{"cells": [{"outputs": [' + b'{"text": "a"},' * 100_000 + b"{}]}]}", 1_500_000),
    ],
)
def test_a_file_of_a_million_parts_is_read(path: str, raw: bytes, size: int) -> None:
    assert abs(len(parse_document(path, raw).text) - size) < 100
