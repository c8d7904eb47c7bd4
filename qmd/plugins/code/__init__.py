"""Source code: a text and the ending of its file's name come in, what the text declares goes out.

Grammars of tree-sitter read it. It must not know where a text is cut, or the index.
"""
