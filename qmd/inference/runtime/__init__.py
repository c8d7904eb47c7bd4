"""ONNX Runtime and tokenizers: a model file comes in; sessions, token ids, logits and sampled tokens go out.

Providers are chosen here by the quantisation format, and CUDA counts as working once a session has run on it. The
package must not know roles, the catalogue or prompts.
"""
