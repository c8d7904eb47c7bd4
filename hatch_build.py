"""Says in one line that the installing Python is too old, before anything is resolved for it."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036, the reason for this file
    sys.exit(f"qmd-search needs Python 3.11 or newer, and this is Python {sys.version_info[0]}.{sys.version_info[1]}")

from hatchling.metadata.plugin.interface import MetadataHookInterface


class PythonVersion(MetadataHookInterface):
    """Nothing to add to the metadata: to be loaded is enough."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, object]) -> None:
        """See `MetadataHookInterface`."""
