"""Real reports, broken on purpose: rows deleted or changed in a copy."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.reports import sqlite_report

OPERATIONS: Final = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET"))


def broken(folder: Path, name: str, of_each: str) -> Path:
    """A copy of the report `name` after a statement was run for each table of operations.

    Args:
        folder: where to put it.
        name: of the report.
        of_each: SQL with `{table}`; `{first}` and `{last}` are the times of the first and the last
            kernel.
    """
    path = sqlite_report(folder, name)
    with closing(sqlite3.connect(path)) as db:
        there = {table for (table,) in db.execute("SELECT name FROM sqlite_master")}
        times = "SELECT min(start), max(start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        first, last = db.execute(times).fetchone()
        for table in OPERATIONS:
            if table in there:
                db.execute(of_each.format(table=table, first=first, last=last))
        db.commit()
    return path


MIDDLE_THIRD_GONE: Final = (
    "DELETE FROM {table} WHERE start BETWEEN {first} + ({last} - {first}) / 3"
    " AND {last} - ({last} - {first}) / 3"
)
EVERY_TENTH_UNSTAMPED: Final = 'UPDATE {table} SET start = 0, "end" = 0 WHERE rowid % 10 = 0'
NO_OPERATIONS: Final = "DELETE FROM {table}"
ONE_GRAPH_KERNEL_STRETCHED: Final = (
    'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = start + 400000000 WHERE rowid ='
    " (SELECT min(rowid) + 300 FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId NOT NULL)"
)
"""What can be done to a report."""
