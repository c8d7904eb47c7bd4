"""reStructuredText and Org: headings, code, names and links, and texts made to break a reader."""

import json
from pathlib import Path

import pytest

from qmd.records import Heading
from tests.parsing import parse_document
from tests.program import Qmd, write_notes

RST = """.. _guide:

==============
Oven ``guide``
==============

Heat
====
See :doc:`bread`, :doc:`the care </care/oven>`, :ref:`rise <rising>`,
`prices <prices.csv>`_ and `the web <https://example.org>`__ or :ref:`genindex`.

Run::

    Not a heading
    =============
    :doc:`nowhere`

.. code-block:: python

   x = 1

.. note:: Steam
   :doc:`hidden`

:mod:`!oven` --- parts
----------------------

=====  =====
A      B
=====  =====

::

.. toctree::
   :maxdepth: 2

   intro
   Title <care/oven>
   old/*

Ab
--
Last:
::

  code"""


def test_headings_code_and_links_of_restructured_text() -> None:
    document = parse_document("docs/guide.rst", RST.encode())
    assert document.text == RST
    assert [(one.level, one.text) for one in document.headings] == [
        (1, "Oven guide"), (2, "Heat"), (3, "oven --- parts"), (3, "Ab")
    ]  # fmt: skip
    assert [RST.index(text) for text in ("Oven", "Heat\n")] == [one.offset for one in document.headings[:2]]
    assert (document.title, document.title_source, document.labels) == ("Oven guide", "heading", ("guide",))
    assert [(one.target, one.text, one.line) for one in document.links] == [
        ("bread.rst", "", 9), ("/care/oven.rst", "the care", 9), ("rising", "rise", 9),
        ("prices.csv", "prices", 10), ("hidden.rst", "", 23), ("intro.rst", "", 37), ("care/oven.rst", "Title", 38),
    ]  # fmt: skip


ORG = """#+TITLE: Bread
#+FILETAGS: :kitchen:yeast:
#+DATE: <2024-03-01 Fri>
:PROPERTIES:
:ID: 1f0c-77
:ROAM_ALIASES: "Sour dough" levain
:END:
* TODO [#A] Rise  :slow:warm:
:LOGBOOK:
- State "TODO"
:END:
See [[file:oven.org::*Heat][the oven]], [[id:9a-2]], [[*Bake]], [[https://example.org][web]], [[./cost.csv]].
  #+begin_src org
* no heading [[file:none.org]]
  #+end_src
** Bake :
"""


def test_headings_properties_and_links_of_org() -> None:
    document = parse_document("bread.org", ORG.encode())
    assert (document.text, document.title, document.date) == (ORG, "Bread", "2024-03-01")
    assert document.metadata == {
        "date": "2024-03-01 Fri", "tags": ("kitchen", "yeast", "slow", "warm"), "aliases": ("Sour dough", "levain")
    }  # fmt: skip
    assert document.labels == ("1f0c-77",)
    assert document.headings == (Heading(1, "Rise", ORG.index("* TODO")), Heading(2, "Bake :", ORG.index("** Bake")))
    links = [(one.target, one.fragment, one.text, one.line) for one in document.links]
    assert links == [
        ("oven.org", "Heat", "the oven", 12), ("9a-2", "", "", 12), ("./cost.csv", "", "", 12)
    ]  # fmt: skip


def test_links_lead_to_files_and_to_labels_in_them(qmd: Qmd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vim")
    notes = {
        "docs/index.rst": ".. toctree::\n\n   use/oven\n\n:ref:`rise <How it rises>`, `p <../p.csv>`_, `q <q.html>`_\n",
        "docs/use/oven.rst": "Oven\n====\n\nIt is in :doc:`/index`.\n\n.. _`how it rises`:\n\nDough\n-----\nSlowly.\n",
        "p.csv": "a,b\n",
        "docs/q.html": "<h1>Q</h1><p><a href='../a.org#x'>org</a>",
        "a.org": "* Plan\n[[id:7-f][b]], [[file:docs/use/oven.rst]]\n",
        "b.org": ":PROPERTIES:\n:ID: 7-f\n:END:\n#+title: Other\n",
    }
    write_notes(tmp_path / "n", notes)
    assert "6 notes" in qmd("index", str(tmp_path / "n"), "--glob", "**/*.{rst,org,csv,html}", "--no-embed").out
    led = {one: json.loads(qmd("links", one, "--json").out) for one in notes}
    found = {name: [row["file"].removeprefix("qmd://n/") for row in links["outgoing"]] for name, links in led.items()}
    assert found == {
        "docs/index.rst": ["docs/use/oven.rst", "docs/use/oven.rst", "p.csv", "docs/q.html"],
        "docs/use/oven.rst": ["docs/index.rst"],
        "p.csv": [],
        "docs/q.html": ["a.org"],
        "a.org": ["b.org", "docs/use/oven.rst"],
        "b.org": [],
    }
    assert "9: -----" in qmd("get", "docs/use/oven.rst#Dough").out
    assert "+8 " in qmd("open", "docs/use/oven.rst:8", "--print").out
