"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes single examples slow, which says nothing about the program.
settings.register_profile("qmd", deadline=None)
settings.load_profile("qmd")
