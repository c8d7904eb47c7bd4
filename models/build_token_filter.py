"""Writes qmd/analysis/o200k.bloom: the tokens of o200k_base (MIT licence), which `qmd.analysis.tokens` asks for.

pip install bpe-openai
python -m models.build_token_filter
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from bpe_openai import get_encoding

from qmd.analysis.tokens import places_of

BITS_OF_A_TOKEN = 12
"""One string in 300 that is no token then passes for one."""

LAST_ID = 199_997


def main() -> None:
    """Write the file."""
    encoding = get_encoding("o200k_base")
    tokens = set()
    for number in range(LAST_ID + 1):
        with contextlib.suppress(UnicodeDecodeError):
            tokens.add(encoding.decode_single_token_bytes(number).decode())
    bits = bytearray(len(tokens) * BITS_OF_A_TOKEN // 8)
    for token in tokens:
        for place in places_of(token, len(bits) * 8):
            bits[place >> 3] |= 1 << (place & 7)
    Path(__file__).parents[1].joinpath("qmd", "analysis", "o200k.bloom").write_bytes(bits)


if __name__ == "__main__":
    main()
