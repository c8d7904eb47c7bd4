"""Packages required by an index at an address."""

import subprocess
import sys
from pathlib import Path

from qmd.installation import install_command
from tests.processes import unmeasured

_WITHOUT = """
import sys
from pathlib import Path
sys.modules["lancedb"] = None
from qmd.errors import QmdError
from qmd.store.opening import open_reader, open_writer
folder = Path(sys.argv[1])
open_writer(folder / "index.sqlite").close()
open_reader(folder / "index.sqlite").close()
print([name for name in ("pyarrow", "pydantic") if name in sys.modules])
for open_index in (open_reader, open_writer):
    try:
        open_index(folder / "state", f"lance:{folder}/tables")
    except QmdError as error:
        print(f"{error.message}; {error.hint}".replace(str(folder), "DIR"))
"""


def test_without_lancedb_an_address_reports_what_to_install_and_files_work(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, env=unmeasured(), check=True)
    line = "index 'lance:DIR/tables' needs LanceDB, which is not installed; " + install_command("lance")
    assert finished.stdout.splitlines() == ["[]", line, line]
    assert not (tmp_path / "tables").exists()
