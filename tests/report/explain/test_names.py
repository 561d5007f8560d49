"""What can be asked for by name."""

import subprocess
import sys

from nsysflow.report.explain.names import names_by_kind
from tests.analyses import SCHEMAS


def test_the_columns_are_those_of_all_tables() -> None:
    assert {*names_by_kind()["columns"]} == {name for schema in SCHEMAS.values() for name in schema}


def test_the_names_need_no_polars() -> None:
    code = (
        "import sys; from nsysflow.report.explain.names import names_by_kind\n"
        "names_by_kind(); print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
