"""What notes are called, as names are compared."""

from __future__ import annotations

import pytest

from qmd.analysis.note_names import name_key


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
