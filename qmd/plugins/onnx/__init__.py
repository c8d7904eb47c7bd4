"""Records from which an ONNX file is written; a library for other plug-ins, which imports none of them."""
