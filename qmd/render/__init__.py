"""Records as the text a person or a program reads.

Comes in: responses, documents, status records and display options. Goes out: strings, complete with their last newline.
Must not know of the index, files, models, or where the text is written.
"""

from __future__ import annotations

from qmd.render.hits import FORMATS, Format, HitOptions, render_hits

__all__ = ["FORMATS", "Format", "HitOptions", "render_hits"]
