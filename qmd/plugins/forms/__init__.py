"""A fetched model's weights come in; our own ONNX graphs of it, checked against the published file, go out.

Used by `qmd models prepare` and `qmd models pull` alone.
It must not know the store, searches or commands.
"""
