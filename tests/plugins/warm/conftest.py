"""Fixtures of `tests.plugins.serving`."""

from tests.plugins.serving import anyio_backend as anyio_backend
from tests.plugins.serving import database as database
from tests.plugins.serving import index as index
from tests.plugins.serving import loader as loader
from tests.plugins.serving import notes as notes
from tests.plugins.serving import policy as policy
