"""Write a small model of llama's architecture with random weights as GGUF: `python write_tiny_gguf.py FILE`.

Run by the Python that has the package `gguf` (see test_cli_llama_server.py); nothing imports it.
"""

import sys

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

WIDTH, HEADS, KV_HEADS, BLOCKS, HIDDEN, CONTEXT = 64, 4, 2, 2, 128, 512
MERGES = ["t h", "th e", "Ġ the", "i n", "e r", "o n", "Ġ s", "Ġ p", "e a", "r i"]
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"


def byte_letters() -> list[str]:
    """Return the letters for the 256 bytes in vocabularies of GPT-2's kind."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]


def write(path: str) -> None:
    """Write the model: byte tokens, a few merges, two special tokens, mean pooling for embeddings."""
    tokens = [*byte_letters(), *("".join(merge.split()) for merge in MERGES), "<s>", "</s>"]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * (len(tokens) - 2) + [TokenType.CONTROL] * 2)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.add_chat_template(TEMPLATE)

    random = np.random.default_rng(0)

    def put(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0, 0.5 / np.sqrt(shape[-1]), shape).astype(np.float32))

    def put_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, np.float32))

    put("token_embd.weight", len(tokens), WIDTH)
    put("output.weight", len(tokens), WIDTH)
    put_norm("output_norm.weight")
    kv_width = WIDTH // HEADS * KV_HEADS
    for block in range(BLOCKS):
        put_norm(f"blk.{block}.attn_norm.weight")
        put_norm(f"blk.{block}.ffn_norm.weight")
        for part, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", kv_width, WIDTH),
            ("attn_v", kv_width, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", HIDDEN, WIDTH),
            ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):
            put(f"blk.{block}.{part}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(sys.argv[1])
