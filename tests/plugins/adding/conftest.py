"""Fixtures of `tests.program`."""

from tests.program import home as home
from tests.program import indexed as indexed
from tests.program import notes as notes
from tests.program import qmd as qmd
from tests.program import tree as tree
