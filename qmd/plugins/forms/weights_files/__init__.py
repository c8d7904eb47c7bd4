"""Model files that other programs brought: GGUF and safetensors come in, named tensors and their settings go out.

Files are mapped into memory and read tensor by tensor. It must not know of graphs, engines or the folder of models.
"""
