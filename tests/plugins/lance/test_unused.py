"""The program works without the client that `lancedb` imports; programs that use qmd have it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lancedb")

SHOW = (
    "import qmd.plugins.lance.opening, lance_namespace_urllib3_client.models as models;"
    "print(hasattr(models.QueryTableRequest, 'model_fields'))"
)


@pytest.mark.parametrize(("before", "has_client"), [("import qmd.__main__;", "False"), ("", "True")])
def test_the_client_is_left_out_of_our_own_program_alone(before: str, has_client: str) -> None:
    done = subprocess.run([sys.executable, "-c", before + SHOW], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == has_client


def test_our_own_program_lists_the_tables_without_it(tmp_path: Path) -> None:
    code = (
        "import qmd.__main__, sys; from qmd.plugins.lance.tables import Connection;"
        "made = Connection(sys.argv[1]); made.create_state(); print(made.names())"
    )
    command = [sys.executable, "-c", code, f"lance:{tmp_path}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "['state']"
