"""What benchmarks/analyze.py measures, each in a process of its own.

    python benchmarks/stages.py tables big.sqlite     the seconds of load and of each table
    python benchmarks/stages.py load big.sqlite       load alone, what the page needs
    python benchmarks/stages.py whole big.sqlite      load with the shapes of kernels
    python benchmarks/stages.py json big.json         decode a trace of torch.profiler alone
    python benchmarks/stages.py floor big.sqlite      read the columns that the analysis needs

Prints one JSON object of name to [seconds, CPU seconds, peak MB so far].
"""

import itertools
import json
import os
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import polars as pl
from adbc_driver_sqlite import dbapi

import nsysflow
from nsysflow.analysis.load.kineto.document import pieces_of
from nsysflow.analysis.tables.index import ABOUT, declarations

os.environ["NSYSFLOW_CACHE"] = "off"  # the report itself is read, each time

_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        'start, "end", deviceId, streamId, correlationId, globalPid, demangledName, shortName,'
        " graphNodeId, gridX, gridY, gridZ, blockX, blockY, blockZ, registersPerThread,"
        " staticSharedMemory, dynamicSharedMemory"
    ),
    "CUPTI_ACTIVITY_KIND_RUNTIME": 'start, "end", globalTid, correlationId, nameId',
}
"""The two tables that hold nearly all rows of a report."""

Times = dict[str, tuple[float, float, int]]


@contextmanager
def _timed(times: Times, name: str) -> Iterator[None]:
    begin, begin_cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    times[name] = (seconds, cpu_s, round(_peak_bytes() / 1e6))


def _peak_bytes() -> int:
    """The most memory of this process. Linux's `ru_maxrss` counts the process that started it, too:
    here one that has loaded the trace."""
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak) * 1024


def tables(path: Path) -> Times:
    """Load, then each table in the order of the index; what several share falls on the first."""
    times: Times = {}
    with _timed(times, "load"):
        trace = nsysflow.load(path)
    analysis = nsysflow.analyze(trace)
    for table in (table.name for table in declarations(ABOUT) if table.scope == "report"):
        with _timed(times, table):
            getattr(analysis, table)
    return times


def load(path: Path) -> Times:
    """Load what the page needs."""
    times: Times = {}
    with _timed(times, "load"):
        nsysflow.load(path, shapes="grid")
    return times


def whole(path: Path) -> Times:
    """Load all that a report holds."""
    times: Times = {}
    with _timed(times, "load"):
        nsysflow.load(path)
    return times


def json_alone(path: Path) -> Times:
    """Decode JSON, and keep nothing of it."""
    times: Times = {}
    with _timed(times, "json"):
        deque(pieces_of(path), maxlen=0)
    return times


def floor(path: Path) -> Times:
    """The same columns as fast as they are known to come: ADBC, split by rowid over the cores."""
    times: Times = {}
    with _timed(times, "floor"), ThreadPoolExecutor(os.cpu_count()) as pool:
        for table, columns in _COLUMNS.items():
            parts = _parts(path, table, os.cpu_count() or 1)
            read = [f"SELECT {columns} FROM {table} WHERE rowid {part}" for part in parts]
            pl.concat(pool.map(lambda sql: _read(path, sql), read))
    return times


def _parts(path: Path, table: str, parts: int) -> list[str]:
    (last,) = _read(path, f"SELECT max(rowid) FROM {table}").row(0)
    edges = [last * part // parts for part in range(parts + 1)]
    return [f"BETWEEN {low + 1} AND {high}" for low, high in itertools.pairwise(edges)]


def _read(path: Path, sql: str) -> pl.DataFrame:
    batches = {"adbc.sqlite.query.batch_rows": "65536"}
    with (
        dbapi.connect(f"{path.resolve().as_uri()}?mode=ro") as connection,
        connection.cursor(adbc_stmt_kwargs=batches) as rows,
    ):
        rows.execute(sql)
        return pl.DataFrame(rows.fetch_arrow())


_STAGES: Final = {
    "tables": tables,
    "load": load,
    "whole": whole,
    "json": json_alone,
    "floor": floor,
}


@click.command()
@click.argument("what", type=click.Choice([*_STAGES]))
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def main(what: str, path: Path) -> None:
    """Measure WHAT on the export PATH."""
    click.echo(json.dumps(_STAGES[what](path)))


if __name__ == "__main__":
    main()
