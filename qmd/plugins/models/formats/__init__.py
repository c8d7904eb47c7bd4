"""Weight formats of models (GGUF, safetensors, published ONNX), converted into our own ONNX graphs.

A model's files come in; graphs go out, checked against the source. It does not download, and does not know the store.
"""
