"""Compare the tokens of a Unigram tokenizer's index with those of the whole tokenizer on generated texts.

    python tests/benchmarks/check_tokens.py [TOKENIZER.json] [--texts 100000] [--sources docs]

Without a file: the multilingual model's. Half of the words are from the files of `--sources`, the other half are random
letters of thirty scripts, with control characters, marks, blanks and special tokens between them. Ends with status 1 if
a text differs in an id, a span or a mark. 100,000 texts take about five minutes.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from qmd.inference.models.builtin import MULTILINGUAL, locate_builtin  # noqa: E402
from qmd.inference.runtime.pieces import index_pieces  # noqa: E402
from qmd.inference.runtime.tokenization import QuickTokenizer, Tokenizer, load_tokenizer, read_tokenizer  # noqa: E402

_SCRIPTS = (
    (0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x586), (0x5D0, 0x5EA), (0x620, 0x64A),
    (0x710, 0x74A), (0x780, 0x7B0), (0x905, 0x94D), (0x985, 0x9CD), (0xA05, 0xA4D), (0xA85, 0xACD), (0xB05, 0xB4D),
    (0xB85, 0xBCD), (0xC05, 0xC4D), (0xC85, 0xCCD), (0xD05, 0xD4D), (0xD85, 0xDCF), (0xE01, 0xE4E), (0xE81, 0xECD),
    (0xF40, 0xFB8), (0x1000, 0x104F), (0x10D0, 0x10FF), (0x1200, 0x137C), (0x1780, 0x17D3), (0x1820, 0x1877),
    (0x3041, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1100, 0x11FF), (0x13A0, 0x13F4),
)  # fmt: skip
_HOSTILE = (
    *"\0\x01\x1b\x7f\x85\xad\ufeff\ufffd\ufffe\u2028\u2029\u200b\u200c\u200d\u200e\u202e\u2060\ufe0f\u0378",
    *" \t\n\r\v\f\xa0\u1680\u2003\u202f\u3000", "  ", " \u0301", "\u0301", "\u20dd", "\U000e0001", "\U0010ffff",
    "\ud800", "\udcff", "<s>", "</s>", "<pad>", "<unk>", "<mask>", " <mask> ", "<s", "s>", "＜s＞", "\u2581", "▁▁a",
    "ﷺ", "ﬃ", "①", "㍿", "Ｆｕｌｌ", "ｶﾞ", "İ", "ǅ", "½", "𝔘𝔫𝔦", "e\u0301\u0323", "👩‍👩‍👧", "🏳️‍🌈", "🇫🇷", "☺",
    "...................", "\\", '"', '["a",-1.0]', "[UNK]", "##a", "query: ", "'", "x" * 300, "漢" * 120, "-" * 70,
)  # fmt: skip


def token_text(seed: int, words: tuple[str, ...] = ()) -> str:
    """Return the text of a number: words of one or several scripts, given words, and hostile parts between them."""
    draw = random.Random(seed)
    kinds = draw.sample(_SCRIPTS, draw.choice((1, 1, 2, 5)))
    parts = []
    for _ in range(draw.choice((1, 2, 3, 8, 8, 30))):
        kind = draw.random()
        if kind < 0.25:
            parts.append(draw.choice(_HOSTILE))
        elif kind < 0.5 and words:
            parts.append(draw.choice(words))
        elif kind < 0.55:
            parts.append(chr(draw.choice((draw.randrange(0x110000), draw.randrange(0x3000)))))
        else:
            low, high = draw.choice(kinds)
            word = "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 9)))
            parts.append(unicodedata.normalize(draw.choice(("NFC", "NFD")), word))
        parts.append(draw.choice(("", " ", " ", " ", "\n", ", ")))
    return "".join(parts)


def main() -> None:
    """Print the number of texts that differ, and the seconds of both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tokenizer", type=Path, nargs="?", help="a tokenizer.json; an index of it is made")
    parser.add_argument("--texts", type=int, default=100_000)
    parser.add_argument("--sources", type=Path, default=ROOT / "docs", help="folder of Markdown files for words")
    arguments = parser.parse_args()
    words = tuple(word for file in arguments.sources.rglob("*.md") for word in file.read_text("utf-8").split())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        shutil.copy(arguments.tokenizer or locate_builtin(MULTILINGUAL) / "tokenizer.json", path)
        index = index_pieces(path.read_bytes())
        if index is None:
            sys.exit("this tokenizer has no index")
        path.with_suffix(".pieces").write_bytes(index)
        quick, whole = load_tokenizer(path), Tokenizer(read_tokenizer(path))
        assert isinstance(quick, QuickTokenizer)
        different, n_tokens, seconds = 0, 0, [0.0, 0.0]
        for seed in range(arguments.texts):
            text = token_text(seed, words)
            answers = []
            for place, tokenizer in enumerate((quick, whole)):
                started = time.process_time()
                answers.append((tokenizer.encode(text), tokenizer.unknown_share(text)))
                seconds[place] += time.process_time() - started
            n_tokens += len(answers[0][0].ids)
            if answers[0] != answers[1]:
                different += 1
                print(f"text {seed} differs: {text!a}")
        assert "_inner" not in vars(quick), "the index was not used for every text"
    each = [f"{1000 * value / max(1, arguments.texts):.2f}" for value in seconds]
    print(f"{different} of {arguments.texts} texts differ ({n_tokens} tokens)")
    print(f"{each[0]} ms a text by the index, {each[1]} ms by the whole tokenizer")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
