"""Pages are short, have no broken links, and are reachable from the README."""

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_DOCS = sorted((_ROOT / "docs").glob("*.md"))
_PAGES = [*sorted(_ROOT.glob("*.md")), *_DOCS, *sorted((_ROOT / "docs" / "dev").glob("*.md"))]
_LOOKED_UP = {"cli", "configuration", "models-reference", "troubleshooting"}
"""References, of which people read only parts."""

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")


def _names(pages: list[Path]) -> list[str]:
    return [page.relative_to(_ROOT).as_posix() for page in pages]


def _targets(page: Path) -> list[str]:
    return _LINK.findall(re.sub("`[^`\n]*`", "", page.read_text("utf-8")))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", _PAGES, ids=_names(_PAGES))
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in _targets(page):
        name, _, anchor = target.partition("#")
        file = page.parent / name if name else page
        assert file.exists(), target
        assert not anchor or anchor in _anchors(file), target


@pytest.mark.parametrize("page", _DOCS, ids=_names(_DOCS))
def test_a_page_can_be_read_in_one_go(page: Path) -> None:
    assert page.stem in _LOOKED_UP or len(page.read_text("utf-8").split()) <= 1_500


def test_the_readme_leads_to_every_page() -> None:
    named = {target.partition("#")[0] for target in _targets(_ROOT / "README.md")}
    assert {page.name for page in _DOCS} == {Path(name).name for name in named if Path(name).parent.name == "docs"} - {
        "vault"
    }
