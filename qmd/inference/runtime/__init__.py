"""ONNX Runtime and tokenizers: a model file comes in; sessions, token ids, logits and sampled tokens go out.

Providers are chosen here by the quantisation format, and CUDA is believed when a session ran on it.
It must not know roles, the catalogue or prompts.
"""
