"""Declarations of source code, read with tree-sitter grammars.

Comes in: a text and the suffix of its file. Goes out: the declarations in the text. Must not know chunk borders or the
index.
"""
