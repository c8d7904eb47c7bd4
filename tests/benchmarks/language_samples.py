"""Notes and questions in 44 languages, read from public data: XQuAD, CMRC and packages of Debian.

A folder contains `xquad/xquad.XX.json`, `cmrc/` (BEIR layout) and these packages of Debian 13:

    apt-get download debian-installer-13-netboot-amd64 libreoffice-help-{en-us,ca,cs,da,el,es,et,fi,fr}
    apt-get download libreoffice-help-{hu,id,it,ja,km,ko,nl,pl,pt,ru,sl,sv,tr}
"""

from __future__ import annotations

import gzip
import html
import json
import re
import subprocess
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

PEOPLE, HELP, INSTALLER = "questions of people", "titles of help pages", "summaries of installer messages"

SOURCES: Mapping[str, str] = {
    PEOPLE: "en de vi th ar zh",
    HELP: "en ca cs da el es et fi fr hu id it ja km ko nl pl pt ru sl sv tr",
    INSTALLER: "en bg bn fa he hi hr is ka lo lt lv nb ro sk sr ta uk",
}
"""Data → languages. Each has those that are nearest to notes and questions of people; English has all, to compare."""

_Texts: TypeAlias = tuple[dict[str, str], dict[str, tuple[str, str]]]
"""Note → text; id of a question → the question and its note."""

_Reader: TypeAlias = Callable[[Path, str], _Texts]

_MOST_LETTERS = 1000
"""Length of a note: two chunks or fewer, so that all languages take minutes."""

_FOREIGN_SHARE = 0.25
"""Greatest share of a page's paragraphs that are still in English."""


class Sample(Struct, frozen=True):
    """Notes of one language, and questions that one note each answers.

    Attributes:
        notes: Name → text, without the question.
        questions: Question → name of its note.
        english: The same questions in English → name; empty if the data have none.
    """

    notes: Mapping[str, str]
    questions: Mapping[str, str]
    english: Mapping[str, str]


def read_sample(folder: Path, source: str, language: str, n_notes: int, n_questions: int) -> Sample:
    """Return a sample that is the same in each run and, as far as the data are parallel, in each language."""
    readers: Mapping[str, _Reader] = {PEOPLE: _read_xquad, HELP: _read_help, INSTALLER: _read_installer}
    read = _read_cmrc if language == "zh" else readers[source]
    notes, questions = read(folder, language)
    english = read(folder, "en")[1] if language not in ("en", "zh") else {}
    # Questions of XQuAD share a note; without them a sample would consist of notes that no question asks for.
    ids = [i for i in sorted(questions, key=_draw) if questions[i][1] in notes]
    several = Counter(text for text, _ in questions.values())
    asked = [i for i in ids if several[questions[i][0]] == 1 and len(questions[i][0]) > 3][:n_questions]
    wanted = dict.fromkeys([questions[i][1] for i in asked] + sorted(notes, key=_draw))
    kept = list(wanted)[: max(n_notes, len({questions[i][1] for i in asked}))]
    # The names in the data are English, and a search finds notes by their names as well.
    names = {name: f"n{number}" for number, name in enumerate(kept)}
    return Sample(
        {names[name]: notes[name][:_MOST_LETTERS] for name in kept},
        {questions[i][0]: names[questions[i][1]] for i in asked},
        {english[i][0]: names[questions[i][1]] for i in asked if i in english},
    )


def _draw(name: str) -> bytes:
    return sha256(name.encode()).digest()


@cache
def _read_xquad(folder: Path, language: str) -> _Texts:
    notes: dict[str, str] = {}
    questions: dict[str, tuple[str, str]] = {}
    articles = json.loads((folder / f"xquad/xquad.{language}.json").read_text("utf-8-sig"))["data"]
    for number, paragraph in enumerate(paragraph for article in articles for paragraph in article["paragraphs"]):
        notes[f"p{number}"] = paragraph["context"].strip("\ufeff")
        questions |= {asked["id"]: (asked["question"].strip(), f"p{number}") for asked in paragraph["qas"]}
    return notes, questions


def _read_cmrc(folder: Path, _language: str) -> _Texts:
    with gzip.open(folder / "cmrc/corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        notes = {row["id"]: row["text"] for row in map(json.loads, lines)}
    answers = dict(line.split("\t")[:2] for line in (folder / "cmrc/qrels.tsv").read_text("utf-8").splitlines())
    rows = map(json.loads, (folder / "cmrc/queries.jsonl").read_text("utf-8").splitlines())
    return notes, {row["id"]: (row["text"], answers[row["id"]]) for row in rows if row["id"] in answers}


@cache
def _read_help(folder: Path, language: str) -> _Texts:
    """Return pages of LibreOffice's help that explain a task, with their titles as questions."""
    pages = _help_pages(folder, "en-us" if language == "en" else language)
    if language == "en":
        return {name: "\n\n".join(text) for name, (_, text) in pages.items()}, {
            n: (t, n) for n, (t, _) in pages.items()
        }
    english = _help_pages(folder, "en-us")
    notes, questions = {}, {}
    for name, (title, text) in pages.items():
        same = set(text) & set(english.get(name, ("", ()))[1])
        if name in english and title != english[name][0] and len(same) <= _FOREIGN_SHARE * len(text):
            notes[name], questions[name] = "\n\n".join(text), (title, name)
    return notes, questions


@cache
def _help_pages(folder: Path, language: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    pages = {}
    for path, raw in _files_of(folder, f"libreoffice-help-{language}_", "/guide/"):
        page = raw.decode("utf-8", "replace")
        heading = re.search(r'<h1 id="hd_[^>]*>(.*?)</h1>(.*)', page, re.DOTALL)
        if heading:
            paragraphs = re.findall(r"<(?:p|h2|h3) id=[^>]*>(.*?)</(?:p|h2|h3)>", heading[2], re.DOTALL)
            text = tuple(filter(None, map(_plain, paragraphs)))
            if text:
                pages[re.sub(r"\W+", "-", path.partition("/text/")[2])] = (_plain(heading[1]), text)
    return pages


def _plain(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


def _read_installer(folder: Path, language: str) -> _Texts:
    """Return longer messages of Debian's installer, with their short forms as questions."""
    notes, questions = {}, {}
    for name, texts in _messages(folder).items():
        short, long = texts.get(language, ("", ""))
        if len(long) > 60 and (language == "en" or long != texts["en"][1]):
            notes[name], questions[name] = long, (short, name)
    return notes, questions


@cache
def _messages(folder: Path) -> Mapping[str, Mapping[str, tuple[str, str]]]:
    (packed,) = (raw for _, raw in _files_of(folder, "debian-installer-13-", "gtk/debian-installer/amd64/initrd.gz"))
    image = gzip.decompress(packed)
    messages: dict[str, dict[str, tuple[str, str]]] = {}
    for name, fields in re.findall(rb"Template: (\S+)\n((?:(?!Template: )[^\0\n]*\n)+)", image):
        found = re.findall(r"(?m)^Description(?:-(\w+)\.UTF-8)?: (.*)\n((?: .*\n)*)", fields.decode("utf-8", "replace"))
        texts = {
            language or "en": (short, " ".join(long.replace("\n .\n", "\n").split())) for language, short, long in found
        }
        if "en" in texts:
            messages.setdefault(re.sub(r"\W+", "-", name.decode()), texts)
    return messages


def _files_of(folder: Path, package: str, within: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a downloaded package whose path contains `within`."""
    (archive,) = folder.glob(f"{package}*.deb")
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as unpacking,
        tarfile.open(fileobj=unpacking.stdout, mode="r|") as files,
    ):
        for member in files:
            if member.isfile() and within in member.name and (content := files.extractfile(member)):
                yield member.name, content.read()
