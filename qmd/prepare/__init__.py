"""A fetched model's weights come in; our own ONNX graphs of it, checked against the published file, go out.

Used by `qmd models prepare` alone, and the only package that needs `onnx`.
It must not know the store, searches or commands.
"""
