"""Vocabulary of dates: English, German, French, Spanish, Russian, and Chinese where one word is enough.

A plain search calls `may_name_date` first and reads on only if it is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Unit = Literal["day", "week", "month", "quarter", "year"]


def _number_names(*names: str, start: int = 0) -> Mapping[str, int]:
    return {name: number for number, line in enumerate(names, start) for name in line.split()}


def _map_names(**names: str) -> Mapping[str, str]:
    return {name: meaning for meaning, line in names.items() for name in line.split()}


MONTHS = _number_names(
    "january jan januar jänner janvier janv enero ene январь января январе январём январем янв",
    "february feb februar février fevrier févr fevr fév febrero февраль февраля феврале февралём февралем февр фев",
    "march mar märz maerz mär mrz mars marzo март марта марте мартом мар",
    "april apr avril avr abril abr апрель апреля апреле апрелем апр",
    "may mai mayo май мая мае маем",
    "june jun juni juin junio июнь июня июне июнем июн",
    "july jul juli juillet juil julio июль июля июле июлем июл",
    "august aug août aout agosto ago август августа августе августом авг",
    "september sept sep septembre septiembre setiembre сентябрь сентября сентябре сентябрём сентябрем сент сен",
    "october oct oktober okt octobre octubre октябрь октября октябре октябрём октябрем окт",
    "november nov novembre noviembre ноябрь ноября ноябре ноябрём ноябрем нояб ноя",
    "december dec dezember dez décembre decembre déc diciembre dic декабрь декабря декабре декабрём декабрем дек",
    start=1,
)

WEEKDAYS = _number_names(
    "monday montag lundi lunes понедельник",
    "tuesday dienstag mardi martes вторник",
    "wednesday mittwoch mercredi miércoles miercoles среда среду",
    "thursday donnerstag jeudi jueves четверг",
    "friday freitag vendredi viernes пятница пятницу",
    "saturday samstag sonnabend samedi sábado sabado суббота субботу",
    "sunday sonntag dimanche domingo воскресенье",
)

SEASONS = _number_names(
    "winter hiver invierno зима зиму зимы зиме зимой 冬天 冬季",
    "spring frühling frühjahr fruehling printemps primavera весна весну весны весной 春天 春季",
    "summer sommer sommers été ete verano лето лета летом 夏天 夏季",
    "autumn fall herbst automne otoño otono осень осени осенью 秋天 秋季",
)
"""In the order of a year: its winter began in the previous year."""

ORDINALS = _number_names(
    "first erste erstes ersten premier primer первый первого первом",
    "second zweite zweites zweiten deuxième deuxieme segundo второй второго втором",
    "third dritte drittes dritten troisième troisieme tercer третий третьего третьем",
    "fourth last vierte viertes vierten letzte letztes letzten quatrième cuarto último четвёртый четвертый четвёртом",
    start=1,
)

DAYS: Mapping[str, int] = {
    name: number - 2
    for name, number in _number_names(
        "vorgestern avant-hier anteayer antier позавчера 前天",
        "yesterday gestern hier ayer вчера 昨天 昨日",
        "today heute aujourd'hui aujourd’hui hoy сегодня 今天 今日",
        "tomorrow demain завтра 明天",
        "übermorgen après-demain послезавтра 后天",
    ).items()
}
"""Days from today. Without German and Spanish tomorrow, which also mean the morning."""

GERMAN = frozenset(
    _number_names("auf das der die ein eine es gibt hat ich im ist kann man mit nicht sind und von was wer wie wir wo")
)
"""Next to one of these `hier` is German and means here."""

UNITS = _map_names(
    day="day days tag tage tagen jour jours día dia días dias день дня дней",
    week="week weeks woche wochen semaine semaines semana semanas неделя неделю неделе недели недель",
    month="month months monat monate monaten mois mes meses месяц месяца месяцев месяце",
    quarter="quarter quarters quartal quartals trimestre квартал квартала квартале",
    year="year years jahr jahre jahren an ans année années annee annees año años год года году лет",
)

SHIFTS_BEFORE: Mapping[str, int] = {
    name: number - 1
    for name, number in _number_names(
        "last past previous letzte letzten letzter letztes letztem vorige vorigen voriger voriges vergangene"
        " vergangenen vergangener vergangenes último última últimos últimas ultimo ultima ultimos ultimas derniers"
        " dernières dernieres прошлый прошлая прошлую прошлой прошлом прошлым последние последних",
        "this diese diesen dieser dieses diesem ce cet cette este esta этот эта эту этой этом этим",
        "next nächste nächsten nächster nächstes kommende kommenden próximo próxima proximo proxima следующий"
        " следующая следующую следующей следующем следующим",
    ).items()
}
"""Units from now, written before the unit."""

SHIFTS_AFTER: Mapping[str, int] = {
    name: number - 1
    for name, number in _number_names(
        "dernier dernière derniere passé passée passe passee pasado pasada",
        "",
        "prochain prochaine próximo próxima proximo proxima",
    ).items()
}
"""Units from now, written after the unit."""

NUMBERS = _number_names(
    "a an one eine einem einer einen un une una uno один одну",
    "two zwei deux dos два две",
    "three drei trois tres три",
    "four vier quatre cuatro четыре",
    "five fünf cinq cinco пять",
    "six sechs six seis шесть",
    "seven sieben sept siete семь",
    "eight acht huit ocho восемь",
    "nine neun neuf nueve девять",
    "ten zehn dix diez десять",
    start=1,
)

AGO_BEFORE = frozenset(("vor", "hace"))
AGO_AFTER = frozenset(("ago", "назад"))

CHINESE = "年月周期天日昨今明"
"""Characters of Chinese dates; each date contains at least one."""


def may_name_date(text: str) -> bool:
    """Return whether `text` contains a digit or a word of dates; cheap and without imports."""
    if any(map(str.isdigit, text)):
        return True
    if not text.isascii() and any(character in text for character in CHINESE):
        return True
    words = (word.strip(".,;:!?()[]¿¡\"'’…") for word in text.lower().split())
    # Also after an elided article: d'hier, l'année.
    forms = (form for word in words for form in (word, word[2:] if word[1:2] in ("'", "’") else ""))
    return any(form in DAYS or form in UNITS or form in WEEKDAYS or form in SEASONS for form in forms)
