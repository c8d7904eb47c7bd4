"""qmd: on-device search over your own markdown.

Comes in: folders of text, questions. Goes out: ranked documents with the passage that answers.
This package root must not import anything heavy: `import qmd` costs nothing until a name is used.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
