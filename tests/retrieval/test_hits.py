"""Stubs, and the mentions of them that are shown."""

import pytest

from qmd.retrieval.hits import is_stub


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\ntags: person\ncompany: a rather long name of some company\n---\n",
        "# A heading that is long enough to be taken for a sentence\n\n- [[one long link]]\n- [two](b.md)\n",
        "## Notes\n\n{{a template that was never filled in, of many words}}\n<% tp.file.title, and so on %>\n",
        "```dataview\ntable file.name from #people where company = this.file.name\n```\n",
        "role:: the head of something important in a company\nphone:\n",
        "会议记录。\n",
    ],
)
def test_an_empty_page_or_a_template_is_a_stub(text: str) -> None:
    assert is_stub(text)


@pytest.mark.parametrize(
    "text",
    [
        "She runs the allotment at the end of the road and lends out tools.\n",
        "我们在三月的会议上决定按席位定价并且通知了所有客户。\n",
        "Tip: water the tomatoes in the early morning only.\n",
    ],
)
def test_a_sentence_makes_a_note(text: str) -> None:
    assert not is_stub(text)
