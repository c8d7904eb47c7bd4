import pytest

from qmd.analysis.stopwords import language_of, stop_words_of


@pytest.mark.parametrize(
    ("text", "stop"),
    [
        ("how do i restore the backup", {"how", "do", "i", "the"}),
        ("wie stelle ich das backup wieder her", {"wie", "ich", "das"}),
        ("hoe herstel ik een back-up van de server", {"ik", "een", "van", "de"}),
        ("die hard", set()),
        ("door is hot", {"is"}),
    ],
)
def test_stop_words_are_those_of_the_one_language_that_the_words_show(text: str, stop: set[str]) -> None:
    assert stop_words_of(text.split()) == stop


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("where is the configuration", "en"),
        ("wo ist die konfiguration", "de"),
        ("waar staat het bestand van de server", "nl"),
        ("где найти настройки для сервера", "ru"),
        ("kubernetes ingress", None),
    ],
)
def test_function_words_tell_the_language(text: str, language: str | None) -> None:
    assert language_of(text.split()) == language
