"""Docstrings, comments, messages and help keep to the plain words of the style guide."""

from collections import Counter

from tests import prose

MOST = {
    "what is": 2,
    "Whether": 33,
}
"""Words of `prose.FEWER`, and "Whether" in front of a value that is a bool: a number only falls."""

EXCEPTIONS: set[tuple[str, str]] = set()
"""(File, text) of findings that are right as they are. The set only shrinks: one without a finding has to go."""


def test_forbidden_words_and_first_words_are_not_used() -> None:
    found = [one for one in prose.findings() if one.word not in MOST]
    assert [str(one) for one in found if (one.file, one.text) not in EXCEPTIONS] == []
    assert {(one.file, one.text) for one in found} >= EXCEPTIONS


def test_counted_words_only_become_fewer() -> None:
    counts = Counter(one.word for one in prose.findings() if one.word in MOST or one.word in prose.FEWER)
    assert counts == MOST, "list them: python -m tests.prose; a lower number goes into the table"


def test_each_finding_names_its_line_and_word() -> None:
    source = '''"""What a module holds."""
class Gate:
    """Lets work
    that nobody waits for go on."""
    is_open: bool
    """Whether it is open."""
    def text(self) -> str:
        """Whether it `says` so."""
        return f"no rooms {self}, he was told"  # Gone.
SQL = "room"
'''
    found = {(one.line, one.word) for one in prose.of_source("qmd/gate.py", source)}
    assert found == {
        (1, "begins with What"),
        (1, "holds"),
        (3, "class begins with a verb"),
        (4, "nobody"),
        (6, "Whether"),
        (8, "begins with Whether"),
        (9, "room"),
        (9, "told"),
        (9, "gone"),
    }
