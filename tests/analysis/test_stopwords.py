from time import process_time

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
        ("Pchnąć w tę łódź jeża lub ośm skrzyń fig", "pl"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy", "cs"),
        ("Az őrült írónő kövér fűnyírót vett", "hu"),
        ("În această țară și în orașul său", "ro"),
        ("Çocuğun dışarıdaki ağacı gördüğü gün", "tr"),
        ("Đội bóng nào đã thắng trận đấu", "vi"),
        ("Hvor mange børn går på øens skole og læser bøger", "da"),
        ("Де їдять найсмачніші вареники в Києві", "uk"),
        ("Где се једу најбољи ћевапи у граду", "sr"),
        ("بهترین رستوران شهر کجاست و چه غذایی دارد", "fa"),
        ("ما هو أفضل مطعم في المدينة", "ar"),
        ("πού μπορώ να αγοράσω ψάρια", "el"),
        ("आज शाम को बाजार से सब्जी लाना है", "hi"),
        ("醤油の作り方", "ja"),
        ("周末去哪里吃火锅", "zh"),
        ("오늘 저녁에 뭐 먹을까", "ko"),
        ("แมวนอนอยู่บนหลังคา", "th"),
        ("the letters ć č đ š ž of Croatian", "en"),
        ("Dvořák and Wałęsa met in the opera of the city ¯\\_(ツ)_/¯", "en"),
    ],
)
def test_function_words_letters_and_scripts_tell_the_language(text: str, language: str | None) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Wie lade ich Dateien über ein Formular hoch?", "de"),
        ("l'homme qui plantait des arbres", "fr"),
        ("cómo declaro parámetros en la ruta", "es"),
        ("validação numérica de parâmetros", "pt"),
        ("hur lagar man en cykel som är trasig", "sv"),
        ("die hard", None),
        ("MIT in Boston", None),
        ("Café Müller Zürich", None),
        ("the rise of die Grünen in the polls", None),
    ],
)
def test_two_signs_show_a_language_surely(text: str, language: str | None) -> None:
    assert language_of(text, 2) == language


def test_a_text_of_a_megabyte_shows_its_language_in_time() -> None:
    started = process_time()
    assert language_of("wörtchen der und " * 60_000 + "ä" * 500_000, 2) == "de"
    assert process_time() - started < 2
