"""Claims of docs/languages.md about each language."""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path

import pytest

import qmd
from qmd.analysis.stopwords import LANGUAGES, STEMMED, stop_words_of
from qmd.dates.relative import find_relative
from qmd.inference.models.builtin import MULTILINGUAL
from qmd.inference.models.catalogue import JINA_ZH, find_model
from qmd.inference.records import ModelRecord
from tests.benchmarks.bench_each_language import COLUMNS, NAMES
from tests.benchmarks.language_samples import SOURCES
from tests.docs.clone import blocks

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "languages.md").read_text("utf-8")
_FIGURES, _, _TABLE = _PAGE.partition("## Words of each language")
_ROWS = [re.split(r" +\| +", line.strip("| ")) for line in _TABLE.splitlines() if line.startswith("|")][2:]
_ROW_OF: Mapping[str, list[str]] = {name.strip(): row[1:] for row in _ROWS for name in row[0].split(",")}

_TEXTS = {
    "English": ("adherence", "The members adhere to the rules.", "what is the rule of the house", "three days ago"),
    "German": ("Datei", "Die Dateien liegen im Keller und nicht hier.", "was ist die Regel", "vor drei Tagen"),
    "French": ("réunion", "Les réunions de la semaine sont ici.", "quelle est la règle", "il y a trois jours"),
    "Spanish": ("reunión", "Las reuniones de los lunes son para todos.", "cuál es la regla", "hace tres días"),
    "Russian": ("встреча", "Мы перенесли встречи, потому что это не так.", "что это за правило", "три дня назад"),
    "Portuguese": ("reunião", "As reuniões são para todos, mas não hoje.", "qual é a regra", "há três dias"),
    "Italian": ("riunione", "Le riunioni sono per tutti, ma non oggi.", "qual è la regola della casa", "tre giorni fa"),
    "Dutch": ("huis", "De huizen zijn van ons en niet van hen.", "wat is de regel", "drie dagen geleden"),
    "Swedish": ("bil", "Det är bilar som vi inte har och de är här.", "vad är det för regel", "för tre dagar sedan"),
    "Chinese": ("恢复备份", "我们每周恢复备份一次。", "规则是什么", "三天前"),
    "Japanese": ("金曜", "会議を金曜日に移しました。", "規則は何ですか", "三日前に"),
    "Korean": ("금요일", "회의를 금요일로 옮겼습니다.", "규칙은 무엇입니까", "사흘 전"),
    "others with spaces between words": ("kitap", "Bütün kitapları raflara koydu.", "kural nedir", "üç gün önce"),
    "Thai": ("ประชุม", "เราเลื่อนการประชุมไปวันศุกร์", "กฎคืออะไร", "สามวันก่อน"),
}
"""A word; a text that has another form of it; a question with common words; `three days ago`."""


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[qmd.Index]:
    root = tmp_path_factory.mktemp("languages")
    (root / "notes").mkdir()
    for language, (_, text, *_) in _TEXTS.items():
        (root / "notes" / f"{language}.md").write_text(f"{text}\n", "utf-8")
    with qmd.open_index(root / "i.sqlite", config={"collections": {"notes": {"path": str(root / "notes")}}}) as index:
        index.update()
        yield index


@pytest.mark.parametrize("language", _TEXTS)
def test_a_row_says_what_is_done(language: str, notes: qmd.Index) -> None:
    word, _, question, ago = _TEXTS[language]
    common, _, in_words, _ = _ROW_OF[language]
    # A language without its own list can contain a word of another list; one word proves nothing.
    assert (len(stop_words_of(question.split())) > 1) == (common == "yes")
    assert bool(find_relative(ago, date(2026, 3, 18))) == (in_words != "no")
    found = [Path(hit.document.path).stem for hit in notes.search(word, mode="lexical").hits]
    assert language in found


def test_the_page_has_every_language_that_the_program_has() -> None:
    assert {*map(LANGUAGES.get, STEMMED), "English"} == {name for name, row in _ROW_OF.items() if row[0] == "yes"}


def test_figures_are_those_of_every_measured_language_and_column() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in _FIGURES.splitlines() if line[:1] == "|"]
    headings = {row[0]: row[1:] for row in rows if row[0] in SOURCES}
    assert headings == {source: list(COLUMNS.values()) for source in SOURCES}
    assert {row[0] for row in rows} >= {NAMES[language] for source in SOURCES.values() for language in source.split()}


def test_the_languages_that_the_page_calls_unrecognised_are_unknown_to_the_program() -> None:
    match = re.search(r"does not recognise:\s+([^.]+)\.", _PAGE)
    names = {name.strip() for name in match[1].split(",")} if match else set[str]()
    assert names and names <= {*NAMES.values()} - {*LANGUAGES.values()}


@pytest.mark.parametrize("model", [MULTILINGUAL, JINA_ZH], ids=["multilingual", "Chinese"])
def test_the_page_names_the_model_as_the_program_does(model: ModelRecord) -> None:
    command = {"built-in": "QMD_EMBED_MODEL=", "full": "qmd models pull "}[model.tier]
    assert f"`{command}{model.name}`" in _PAGE and find_model(model.name, "embed") is model


def test_the_page_installs_the_project_that_contains_the_model() -> None:
    [(_, _, command)] = blocks("docs/languages.md", "sh")
    assert all((_ROOT / name / "pyproject.toml").is_file() for name in command.split()[2:])
