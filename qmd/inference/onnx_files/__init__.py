"""ONNX files come in as records and arrays, and records go out as ONNX files; large data is mapped, never read whole.

It stands in for the package `onnx`, of which qmd would use a hundredth. It knows no models, engines or runtime.
"""
