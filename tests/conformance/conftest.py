"""Fixtures of `tests.program`."""

from tests.program import home as home
from tests.program import qmd as qmd
