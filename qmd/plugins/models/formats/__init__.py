"""Weight formats of models (GGUF, safetensors, published ONNX), converted into ONNX graphs of qmd.

A model's files come in; graphs go out, checked against the source. It does not download, and knows no store.
"""
