"""The engine for an index in LanceDB tables, in a folder or an object store that several machines share.

Full text, vectors and filters are the tables' own indexes. No other package knows `lancedb`. Addresses are parsed here,
as this is needed before anything of LanceDB is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

from qmd.file_names import to_text, typed_path
from qmd.plugins.lance.partial_import import import_without_client

# Its Rust library writes warnings to stderr by itself. It reads this once, when it is loaded.
os.environ.setdefault("LANCEDB_LOG", "error")
import_without_client()


def resolve_folder(text: str, cwd: Path, home: Path) -> str | None:
    """Return `lance:` and the absolute path of a folder; None if no folder is named."""
    path = text.partition(":")[2]
    if not path.strip("/"):
        return None
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    # Two slashes at the start would stay.
    path = f"/{path.lstrip('/')}" if path.startswith("/") else path
    return "lance:" + to_text(os.path.normpath(cwd / typed_path(path)))


def resolve_bucket(text: str, cwd: Path, home: Path) -> str | None:
    """Return `s3://` with a bucket and the prefix of its keys; None if no bucket is named."""
    rest = text.partition(":")[2]
    return "s3://" + rest.strip("/") if rest.startswith("//") and rest.strip("/") else None
