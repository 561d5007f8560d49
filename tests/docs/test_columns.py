"""Scripts may rely on the columns of a schema: none goes or changes its type before the next one.

`python -m tests.docs.test_columns` writes the file anew, after `SCHEMA_VERSION` was raised.
"""

from typing import Final

from nsysflow.analysis.tables.index import declarations
from nsysflow.compare.document import READ_VERSIONS, SCHEMA_VERSION
from tests.reports import DATA

PROMISED: Final = DATA / "columns.txt"


def columns() -> set[str]:
    """Each column of a table that files or report.json have, with its type."""
    return {
        f"{table.name}.{column} {type(dtype).__name__}"
        for table in declarations()
        for column, dtype in table.schema.items()
    }


def test_no_column_of_this_schema_went_or_changed_its_type() -> None:
    schema, *promised = PROMISED.read_text(encoding="utf-8").splitlines()
    assert schema == f"schema {SCHEMA_VERSION}", "run `python -m tests.docs.test_columns`"
    gone = sorted({*promised} - columns())
    assert gone == [], "retire them first (docs/usage.md), or raise SCHEMA_VERSION"


def test_the_schema_before_this_one_is_read_too() -> None:
    assert {SCHEMA_VERSION, SCHEMA_VERSION - 1} <= {*READ_VERSIONS}


if __name__ == "__main__":
    lines = [f"schema {SCHEMA_VERSION}", *sorted(columns())]
    PROMISED.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
