"""The built-in models: their records, their folders, and the words in the vocabulary of the one that ships."""

from __future__ import annotations

import unicodedata
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from qmd.errors import ModelError
from qmd.inference.records import MINILM_SCALE, UNPINNED, CosineScale, ModelFile, ModelFormat, ModelRecord

MINILM = ModelRecord(
    name="all-MiniLM-L6-v2",
    role="embed",
    tier="built-in",
    repository="sentence-transformers/all-MiniLM-L6-v2",
    revision=UNPINNED,
    licence="Apache-2.0",
    languages=("en",),
    scripts=("LATIN",),
    formats=(
        ModelFormat(
            "int8",
            ModelFile("model.onnx", 23_497_827, "6c0e9feafc8e5ab9d0248ab73afaf3ec713dc65a19b63c509ae92e6b2b304b36"),
            "cpu",
        ),
    ),
    files=(ModelFile("tokenizer.json", 466_082, "3ad857958ba886d154a5a852119fb31a0dd549d03d8a3fc20e33f2336272cc19"),),
    context=256,
    # Trained on texts of 128 tokens; yet 110 instead or in addition lost on three collections and won on one vault.
    max_tokens=240,
    dim=384,
    pooling="mean",
    is_fused=True,
    batches=ModelFile(
        "model_batches.onnx", 105_261, "aa4631044e89b4da45c36308c1f8b2534291ed45adf38c6ba882a94a932f42c4"
    ),
    scale=MINILM_SCALE,
)

MULTILINGUAL = ModelRecord(
    name="multilingual",
    role="embed",
    tier="built-in",
    repository="intfloat/multilingual-e5-small",
    revision=UNPINNED,
    licence="MIT",
    languages=("*",),
    scripts=(),
    # The recipe in models/multilingual writes these bytes on every machine.
    formats=(
        ModelFormat(
            "int8",
            ModelFile("model.onnx", 22_531_223, "07ead0826c794b7c11eeeee496626e959f86e17fcc9f4a577721d107ea69b2c3"),
            "cpu",
        ),
    ),
    files=(
        ModelFile("model.onnx.data", 60_008_880, "0a886afa89dfa2fb5501b6628a0eacda79da695e9a4f3f5dbeead9f054ce08ff"),
        ModelFile("tokenizer.json", 8_779_890, "9e7e9dc995085623049d18daa2299df8f0f466f95212368af80e7c106ad3a455"),
    ),
    pieces=ModelFile("tokenizer.pieces", 4_000_080, "2c5a85ec8d73f9b11fa611168749315c35c7c284a491a0cb6107bcf958cbf15e"),
    context=512,
    max_tokens=240,
    dim=384,
    pooling="mean",
    document_prompt="passage: ",
    query_prompt="query: ",
    is_fused=True,
    scale=CosineScale(0.898, 0.812),
)
PACKAGE = "qmd-search-multilingual"
"""The package of that model, which contains it as `qmd_multilingual`."""

MAXSIM_NAME = "all-MiniLM-L6-v2 MaxSim"
"""Name of the built-in reranker, which uses the built-in embedding model's token vectors."""

_ENDINGS = "s= es= ies=y ed= ed=e ied=y ing= ing=e ly= ily=y er= er=e ness= iness=y"
"""English endings, and the ending of the word without them."""

_SHORTEST_BASE = 4
"""Least letters of a word that may have an ending: too many shorter ones are pieces, and `cas` + `ed` is no word."""


def find_builtin(record: ModelRecord = MINILM) -> Path | None:
    """Return the folder of a built-in model, if whole: of the package that contains it, or in the source tree."""
    package = Path(__file__).resolve().parents[2]
    folders = [package / "builtin" / record.folder, package.parent / "models" / record.folder]
    if record is MULTILINGUAL:
        found = find_spec("qmd_multilingual")
        folders = [Path(place) for place in (found and found.submodule_search_locations) or ()]
    files = [file.path for file in (record.formats[0].weights, *record.files)]
    return next((folder for folder in folders if all((folder / file).is_file() for file in files)), None)


def locate_builtin(record: ModelRecord = MINILM) -> Path:
    """Return the folder of a built-in model.

    Raises:
        ModelError: Its package is not installed, or not as a whole.
    """
    if (folder := find_builtin(record)) is not None:
        return folder
    from qmd.installation import MODEL, install_command

    if record is MULTILINGUAL:
        raise ModelError(f"the package {PACKAGE} of a clone of qmd is not installed", install_command(MODEL))
    raise ModelError(f"the built-in model is missing from '{Path(__file__).resolve().parents[2]}'", "reinstall qmd")


def is_word(text: str) -> bool:
    """Return whether a word is whole in the vocabulary (30,000 entries, nearly all English), or an inflection of one.

    Costs about half a millisecond for each form that is looked up, and loads no tokenizer.
    """
    letters = unicodedata.normalize("NFD", text.casefold())
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return bare.isalnum() and any(f'"{form}":'.encode() in _tokenizer_bytes() for form in _base_forms(bare))


def _base_forms(word: str) -> list[str]:
    """Return the word and its possible base forms."""
    forms = [word]
    for ending, replacement in (pair.split("=") for pair in _ENDINGS.split()):
        base = word.removesuffix(ending)
        if base != word and len(base + replacement) >= _SHORTEST_BASE:
            forms.append(base + replacement)
            if base[-1] == base[-2] and ending[0] in "ei":
                forms.append(base[:-1])
    return list(dict.fromkeys(forms))


@cache
def _tokenizer_bytes() -> bytes:
    """Return the raw file, empty if it is missing: searching its 0.5 MB takes a fraction of the time of parsing it."""
    try:
        return (locate_builtin() / "tokenizer.json").read_bytes()
    except ModelError:
        return b""
