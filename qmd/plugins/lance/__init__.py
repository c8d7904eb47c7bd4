"""The engine that keeps an index in LanceDB tables, in a folder or an object store that several machines share.

Full text, vectors and filters are the tables' own indexes. No other package knows `lancedb`. What a person means by an
address is said here, as it is asked before anything of LanceDB is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

from qmd.file_names import to_text, typed_path
from qmd.plugins.lance.partial_import import import_without_client

# Its Rust library writes warnings to stderr of its own accord. Read once, when it is loaded.
os.environ.setdefault("LANCEDB_LOG", "error")
import_without_client()


def resolve_folder(text: str, cwd: Path, home: Path) -> str | None:
    """`lance:` and the absolute path of a folder; None where none is named."""
    path = text.partition(":")[2]
    if not path.strip("/"):
        return None
    if path == "~" or path.startswith("~/"):
        path = f"{home}{path[1:]}"
    # Two slashes at the start would stay.
    path = f"/{path.lstrip('/')}" if path.startswith("/") else path
    return "lance:" + to_text(os.path.normpath(cwd / typed_path(path)))


def resolve_bucket(text: str, cwd: Path, home: Path) -> str | None:
    """`s3://` with a bucket and what its keys begin with; None where no bucket is named."""
    rest = text.partition(":")[2]
    return "s3://" + rest.strip("/") if rest.startswith("//") and rest.strip("/") else None
