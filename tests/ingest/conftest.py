from __future__ import annotations

from tests.program import home as home
from tests.program import qmd as qmd
