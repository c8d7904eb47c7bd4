"""Files that qmd itself keeps."""

import os
import time
from pathlib import Path

from qmd.files import write_atomically


def test_what_killed_writes_left_is_swept_by_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "index.yml"
    left = tmp_path / ".index.yml.ab12_xyz"
    kept = [".index.yml.fresh123", ".index.yml.backup", ".index.yml.ab12_xyz.old", ".other.yml.ab12_xyz", "index.yml~"]
    long_ago = time.time() - 3600
    for path in (left, *(tmp_path / name for name in kept)):
        path.write_text("")
        os.utime(path, (long_ago, long_ago))
    os.utime(tmp_path / ".index.yml.fresh123")

    write_atomically(target, "collections: {}\n")

    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "index.yml"])
