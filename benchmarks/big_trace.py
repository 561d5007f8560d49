"""Make a big trace: an Nsight Systems SQLite export, repeated in time.

    python benchmarks/big_trace.py report.sqlite.xz big.sqlite --kernels 1_000_000

Each repetition is shifted by the length of the report and gets correlation ids of its own, so that
the result is what one long run of the same program would have left. Strings are not copied.
"""

import lzma
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import click

_REPEATED = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "PROFILER_OVERHEAD",
)
_PAUSE_NS = 1_000_000
"""Between the end of one repetition and the start of the next."""


def make_big_trace(source: Path, target: Path, *, kernels: int) -> int:
    """Write `source`, repeated until it has at least `kernels` kernels, to `target`.

    Args:
        source: an export, plain or `.xz`; it is not changed.
        target: overwritten.
        kernels: how many kernels the result has at least.

    Returns:
        How many kernels it has.
    """
    _unpack(source, target)
    with closing(sqlite3.connect(target)) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
        tables = _columns(db)
        held = _count(db)
        _repeat(db, tables, times=-(-kernels // held))
        db.commit()
        return _count(db)


def _unpack(source: Path, target: Path) -> None:
    opener = lzma.open if source.suffix == ".xz" else open
    with opener(source, "rb") as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain)


def _columns(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The columns of the tables to repeat, of those the export has."""
    columns = {
        table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in _REPEATED
    }
    return {table: names for table, names in columns.items() if names}


def _count(db: sqlite3.Connection) -> int:
    (count,) = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    return int(count)


def _repeat(db: sqlite3.Connection, tables: dict[str, list[str]], *, times: int) -> None:
    extents = [f'SELECT min(start) AS t, max("end") AS u {_rows(table)}' for table in tables]
    ends = f"SELECT min(t), max(u) FROM ({' UNION '.join(extents)})"
    first_ns, last_ns = db.execute(ends).fetchone()
    ids = [
        f"SELECT max(correlationId) AS c FROM {table}"
        for table, names in tables.items()
        if "correlationId" in names
    ]
    (last_id,) = db.execute(f"SELECT max(c) FROM ({' UNION '.join(ids)})").fetchone()
    length_ns = last_ns - first_ns + _PAUSE_NS
    step = {"start": length_ns, "end": length_ns, "correlationId": last_id + 1}
    for table, names in tables.items():
        shifted = ", ".join(f'"{name}" + i * {step[name]}' for name in step if name in names)
        kept = ", ".join(f'"{name}"' for name in names if name not in step)
        moved = ", ".join(f'"{name}"' for name in step if name in names)
        db.execute(f"CREATE TEMP TABLE once AS SELECT * {_rows(table)}")
        db.execute(
            f"""WITH RECURSIVE copies(i) AS
                (SELECT 1 UNION ALL SELECT i + 1 FROM copies LIMIT {times - 1})
            INSERT INTO {table} ({moved}, {kept})
            SELECT {shifted}, {kept} FROM copies CROSS JOIN once"""
        )
        db.execute("DROP TABLE once")


def _rows(table: str) -> str:
    """Of the NVTX rows only ranges (59, 60) repeat; the others describe domains and strings."""
    return f"FROM {table}" + (" WHERE eventType IN (59, 60)" if table == "NVTX_EVENTS" else "")


@click.command()
@click.argument("source", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--kernels", default=1_000_000, show_default=True, help="Kernels, at least.")
def main(source: Path, target: Path, kernels: int) -> None:
    """Repeat the export SOURCE in time and write TARGET."""
    click.echo(f"{make_big_trace(source, target, kernels=kernels):,} kernels", err=True)


if __name__ == "__main__":
    main()
