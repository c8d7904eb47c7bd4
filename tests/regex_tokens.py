"""Token positions for tests of chunking, without a model."""

import re

_TOKEN = re.compile(r"[^\W_]{1,6}|[^\w\s]|_")
"""Word pieces of English average five to six letters; longer words count as several tokens."""


def regex_token_starts(text: str) -> list[int]:
    """Offsets of approximate tokens, ascending: runs of up to six letters or digits, and single symbols."""
    return [match.start() for match in _TOKEN.finditer(text)]
