"""A byte-level tokenizer with Qwen3's special tokens, small enough for the tiny models' vocabulary of 320."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_MERGES = ("y e", "ye s", "n o", "l e", "le x", "v e", "ve c", "t h", "th e", "Ġ the", "Ċ Ċ", "i n", "in g", "e r")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<think>", "</think>")


def write_tokenizer(folder: Path) -> None:
    """Write `tokenizer.json` and `generation_config.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [(left, right) for left, right in map(str.split, _MERGES)]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP])
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|endoftext|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}), "utf-8")
