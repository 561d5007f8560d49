"""What is mutated: small reports of every format, and the other files that commands read."""

import gzip
import json
import lzma
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl
from click.testing import CliRunner
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from nsysflow.cli.main import main
from nsysflow.runs.cache import VARIABLE
from nsysflow.runs.manifest import FILE, SCHEMA
from tests.analysis.load.test_folders import ENDINGS, write_table
from tests.exports import write_export
from tests.fuzz.mutations import (
    MARKS,
    Table,
    Tables,
    change_bytes,
    change_document,
    change_lines,
    change_packets,
    change_tables,
    share_values,
)
from tests.pftrace import Rocprof, monitor_trace
from tests.reports import DATA, PACKED
from tests.rocpd import FORMS, Database, write_rocpd
from tests.runs.runs import RUN

KEPT_ROWS: Final = 600
"""So many rows of each table of a real report are kept, for short analyses."""

REAL: Final = (
    *("h200-ddp-messages", "h200-gpu-metrics", "h200-graph-level", "h200-graph-ranges"),
    *("h200-hf-trainer", "h200-nvtx-domain", "h200-train", "nan_check-sync", "synthetic-1"),
    *("synthetic-3", "launch_bound-graph", "alloc_churn-empty_cache", "nan_check-sync-metrics"),
)
"""One of each kind of report."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """An input that was changed: what a command is to read, and whether only bytes were changed."""

    path: Path
    changes: list[str]
    by_bytes: bool


def mutate_tables(draw: Random, tables: Tables) -> list[str]:
    """Change tables once or a few times."""
    return [change_tables(draw, tables) for _ in range(draw.choice((1, 1, 2, 3, 5, 8)))]


def _bytes_of(draw: Random, path: Path) -> list[str]:
    content = bytearray(path.read_bytes())
    said = [change_bytes(draw, content) for _ in range(draw.choice((1, 1, 2, 5)))]
    path.write_bytes(content)
    return said


def tables_of(path: Path) -> Tables:
    """The tables of a database."""
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        names = [
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        ]
        return {name: _table_of(db, name) for name in names}


def _table_of(db: sqlite3.Connection, name: str) -> Table:
    found = db.execute(f'SELECT * FROM "{name}"')
    columns = [column for column, *_ in found.description]
    return Table(columns, [list(row) for row in found])


def write_sqlite(path: Path, tables: Tables) -> None:
    """A database of these tables; text that is not Unicode is written as its bytes."""
    with closing(sqlite3.connect(path)) as db:
        for name, table in tables.items():
            columns = ", ".join(f'"{column}"' for column in table.columns)
            db.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * len(table.columns))
            rows = [[_for_sqlite(value) for value in row] for row in table.rows]
            db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
        db.commit()


def _for_sqlite(value: object) -> object:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def write_folder(folder: Path, tables: Tables, kind: str) -> None:
    """A folder of these tables. A column has one type: values of another become text."""
    folder.mkdir()
    for name, table in tables.items():
        columns: dict[str, pl.Series] = {}
        for at, column in enumerate(table.columns):
            columns[column] = _series(column, [row[at] for row in table.rows])
        write_table(pl.DataFrame(columns), kind, folder / f"{name}{ENDINGS[kind]}")


def _series(name: str, values: list[Any]) -> pl.Series:
    types = {type(value) for value in values} - {type(None)}
    if types <= {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pl.Series(name, values, pl.Int64)
    if types <= {int, float}:
        return pl.Series(name, [None if v is None else float(v) for v in values], pl.Float64)
    if types == {bytes}:
        return pl.Series(name, values, pl.Binary)
    texts = [None if value is None else str(value) for value in values]
    return pl.Series(name, [t and t.encode("utf-8", "replace").decode() for t in texts], pl.String)


@cache
def _real_tables(name: str) -> str:
    """The first rows of a real report's tables, as JSON: each mutant gets its own copy."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.sqlite"
        path.write_bytes(lzma.decompress(PACKED[name].read_bytes()))
        tables = tables_of(path)
    for table in tables.values():
        if "start" in table.columns or "timestamp" in table.columns:
            del table.rows[KEPT_ROWS:]
    plain = {
        name: {
            "columns": table.columns,
            "rows": [[None if isinstance(v, bytes) else v for v in row] for row in table.rows],
        }
        for name, table in tables.items()
    }
    return json.dumps(plain)


@cache
def _small_tables() -> str:
    """Steps of two threads and two GPUs with all that an export may have, by hand."""
    with TemporaryDirectory() as folder:
        tables = tables_of(small_export(Path(folder) / "r.sqlite"))
    return json.dumps({name: asdict(table) for name, table in tables.items()})


def small_export(path: Path) -> Path:
    """Steps of a thread with kernels, copies, waits, memory, counters, and all marks of ours."""
    begins = [1_000_000 * n for n in range(6)]
    kernels: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    memcpys: list[dict[str, Any]] = []
    nvtx: list[dict[str, Any]] = []
    for number, begin in enumerate(begins):
        nvtx.append({"start": begin, "end": begin + 990_000, "text": "step"})
        nvtx.append({"start": begin + 10, "end": begin + 500_000, "textId": "forward"})
        for at in range(5):
            start, one = begin + 20_000 + 100_000 * at, 100 * number + at + 1
            calls.append({"start": start, "end": start + 9000, "correlationId": one})
            kernels.append({"start": start + 9500, "end": start + 60_000, "correlationId": one})
        one, start = 100 * number + 50, begin + 600_000
        wait = {"start": start, "end": start + 90_000, "correlationId": one}
        calls += [
            wait | {"nameId": "cudaMemcpyAsync_v3020"},
            {"start": start + 100_000, "end": start + 300_000, "nameId": "cudaStreamSynchronize"},
        ]
        memcpys.append({"start": start + 20_000, "end": start + 80_000, "correlationId": one})
    marks = [{"nsysflow": held} for held in MARKS]
    nvtx += [
        {"start": 5 * at, "end": None, "eventType": 34, "text": json.dumps(held)}
        for at, held in enumerate(marks)
    ]
    metrics = [{"typeId": 1, "metricId": m, "metricName": n} for m, n in enumerate(_METRICS)]
    samples = [
        {"timestamp": 100_000 * at, "typeId": 1, "metricId": m, "value": 7 * at % 101}
        for at in range(60)
        for m in range(len(_METRICS))
    ]
    memory = {"globalPid": 1000 << 24, "deviceId": 0, "memKind": 2, "memoryOperationType": 0}
    return write_export(
        path,
        kernels=kernels,
        calls=calls,
        memcpys=memcpys,
        memsets=[{"start": 100, "end": 200}],
        nvtx=nvtx,
        overhead=[{"start": 300, "end": 900}],
        threads=[{}],
        cuda_devices=[{}],
        gpus=[{}],
        diagnostics=[{}],
        tables={
            "TARGET_INFO_GPU_METRICS": metrics,
            "GPU_METRICS": samples,
            "NSYSFLOW_MEMORY": [{"pid": 1000, "history": json.dumps(HISTORY)}],
            "CUDA_GPU_MEMORY_USAGE_EVENTS": [
                memory | {"start": 100 * at, "address": 1 << at, "bytes": 1 << 20} for at in (1, 2)
            ],
        },
    )


HISTORY: Final = {
    "pid": 1000,
    "frames": [["/home/me/train.py", 7, "step"], ["<frozen runpy>", 9, "main"]],
    "stacks": [[0, 1], [1]],
    "devices": [
        {
            "history": [
                ["segment_alloc", 1 << 20, 4 << 20, 10**15, None],
                *(["alloc", 512 * at, 512, 10**15 + 1000 * at, at % 2] for at in range(1, 5)),
                *(["free_requested", 512 * at, 512, 10**15 + 1000 * at, 1] for at in range(2, 8)),
                ["oom", 99, 8 << 20, 10**15 + 9000, 0],
            ],
            "blocks": [[512, 512, 0], [1 << 12, 700, None]],
            "reserved": 4 << 20,
            "usable": 80 << 30,
        }
    ],
}
"""What a process leaves of PyTorch's allocator."""

_METRICS: Final = ("GPC Clock Frequency [MHz]", "SMs Active [Throughput %]", "DRAM Read Bandwidth")


def _copy_of(draw: Random) -> Tables:
    name = draw.choice((*REAL, *("small",) * len(REAL)))
    text = _small_tables() if name == "small" else _real_tables(name)
    return {each: Table(**table) for each, table in json.loads(text).items()}


def sqlite(draw: Random, folder: Path) -> Mutant:
    """An nsys SQLite export, perhaps packed."""
    tables, path = _copy_of(draw), folder / "r.sqlite"
    by_bytes = draw.random() < 0.15
    said = [] if by_bytes else mutate_tables(draw, tables)
    write_sqlite(path, tables)
    if draw.random() < 0.2:
        packed = folder / f"r.sqlite{draw.choice(('.xz', '.gz'))}"
        pack = lzma.compress if packed.suffix == ".xz" else gzip.compress
        packed.write_bytes(pack(path.read_bytes()))
        path.unlink()
        path = packed
    return Mutant(path=path, changes=said or _bytes_of(draw, path), by_bytes=by_bytes)


def tables_folder(draw: Random, folder: Path) -> Mutant:
    """A parquetdir or arrowdir of nsys."""
    tables, path = _copy_of(draw), folder / "r"
    by_bytes = draw.random() < 0.15
    said = [] if by_bytes else mutate_tables(draw, tables)
    write_folder(path, tables, draw.choice([*ENDINGS]))
    if by_bytes:
        said = _bytes_of(draw, draw.choice(sorted(path.iterdir())))
    return Mutant(path=path, changes=said, by_bytes=by_bytes)


def _rocprof_run(form: Any) -> Database:
    run = Database(form)
    for step in range(4):
        at, one = 1000 * step, 10 * step
        run.call(at, at + 900, one + 9, "roctxThreadRangeA", "MARKER_CORE_RANGE_API", "step 1")
        run.call(at + 5, at + 10, one + 1)
        run.kernel(at + 12, at + 400, one + 1)
        run.call(at + 41, at + 500, one + 2, "hipDeviceSynchronize")
        run.call(at + 510, at + 550, one + 3, "hipMemcpy")
        run.copy(at + 520, at + 549, one + 3, 1, 2, 4096)
    return run


def rocpd(draw: Random, folder: Path) -> Mutant:
    """A database of rocprofv3."""
    path = write_rocpd(folder / "1_results.db", _rocprof_run(draw.choice(FORMS)))
    if draw.random() < 0.15:
        return Mutant(path=path, changes=_bytes_of(draw, path), by_bytes=True)
    tables = tables_of(path)
    said = mutate_tables(draw, tables)
    path.unlink()
    write_sqlite(path, tables)
    return Mutant(path=path, changes=said, by_bytes=False)


@cache
def _kineto_text() -> str:
    """The first events of each kind of a real trace of torch.profiler."""
    document = json.loads(gzip.decompress((DATA / "h200-kineto.pt.trace.json.gz").read_bytes()))
    seen: dict[str, int] = {}
    kept = []
    for each in document["traceEvents"]:
        kind = f"{each.get('ph')} {each.get('cat')}"
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= KEPT_ROWS // 3:
            kept.append(each)
    document["traceEvents"] = kept
    return json.dumps(document)


def kineto(draw: Random, folder: Path) -> Mutant:
    """A trace of torch.profiler."""
    path, by_bytes = folder / "r.pt.trace.json", draw.random() < 0.15
    document, said = json.loads(_kineto_text()), []
    if not by_bytes:
        said = _changes(draw, document)
    text = json.dumps(document).encode()
    if draw.random() < 0.2:
        path, text = folder / "r.pt.trace.json.gz", gzip.compress(text)
    path.write_bytes(text)
    return Mutant(path=path, changes=said or _bytes_of(draw, path), by_bytes=by_bytes)


def _changes(draw: Random, document: Any) -> list[str]:
    count = draw.choice((1, 2, 5, 30))
    return [change_document(draw, document) for _ in range(count)]


@cache
def _packet_traces() -> tuple[bytes, ...]:
    """Traces of rocprofv3, of torch.profiler's monitor, and our own."""
    run = Rocprof()
    for at in range(0, 4000, 1000):
        run.call(at, at + 900, at + 9, "step 1", "marker_api")
        run.call(at + 5, at + 10, at + 1)
        run.kernel(at + 12, at + 400, at + 1)
        run.call(at + 110, at + 150, at + 3, "hipMemcpy")
        run.copy(at + 120, at + 149, at + 3, "CPU-0", "GPU-0", 4096, "HOST_TO_DEVICE")
    events = [each for each in json.loads(_kineto_text())["traceEvents"] if each["ph"] == "X"]
    placed = [each for each in events if isinstance(each.get("args", {}).get("device", 0), int)]
    with TemporaryDirectory() as folder:
        ours = Path(folder) / "r.pftrace"
        report = small_export(Path(folder) / "r.sqlite")
        CliRunner().invoke(main, ["pack", str(report), "-o", str(ours)], catch_exceptions=False)
        return run.content(), monitor_trace(placed[:300]), ours.read_bytes()


def pftrace(draw: Random, folder: Path) -> Mutant:
    """A trace in Perfetto's format."""
    path, content = folder / "r.pftrace", draw.choice(_packet_traces())
    if draw.random() < 0.4:
        path.write_bytes(content)
        return Mutant(path=path, changes=_bytes_of(draw, path), by_bytes=True)
    packets = list(protos.Trace.FromString(content).packet)
    said = [change_packets(draw, packets) for _ in range(draw.choice((1, 2, 5, 30)))]
    path.write_bytes(protos.Trace(packet=packets).SerializeToString())
    return Mutant(path=path, changes=said, by_bytes=False)


def snapshot(draw: Random, folder: Path) -> Mutant:
    """A memory snapshot of PyTorch."""
    path, by_bytes = folder / "r.pickle", draw.random() < 0.4
    document = _snapshot_document()
    said = [] if by_bytes else _changes(draw, document)
    if not by_bytes and draw.random() < 0.2:
        said.append(share_values(draw, document))
    path.write_bytes(pickle.dumps(document, protocol=draw.choice((3, 4, 5))))
    return Mutant(path=path, changes=said or _bytes_of(draw, path), by_bytes=by_bytes)


def _snapshot_document() -> dict[str, Any]:
    """Two GPUs whose memory was given out, taken back and used up, with stacks and annotations."""
    python = [{"filename": "/home/me/model.py", "line": 8, "name": "attend"}]
    in_c = [{"filename": "", "line": 0, "name": "at::_ops::bmm::call(at::Tensor const&)"}]

    def entry(at: int, action: str, size: int, **more: object) -> dict[str, Any]:
        where = {"addr": 4096 * (at // 2), "size": size, "stream": 0, "time_us": 10**15 + at}
        return {"action": action, **where, "frames": in_c + python * (at % 2), **more}

    history = [entry(0, "segment_alloc", 1 << 20)]
    for at in range(1, 40, 2):
        history += [entry(at, "alloc", 600), entry(at + 1, "free_requested", 600)]
    history.append(entry(50, "oom", 1 << 30, device_free=512))
    block = {"address": 9, "size": 1024, "requested_size": 600, "state": "active_allocated"}
    return {
        "segments": [
            {"device": gpu, "address": 0, "total_size": 1 << 21, "blocks": [dict(block)]}
            for gpu in range(2)
        ],
        "device_traces": [history, [entry(1, "alloc", 512)]],
        "external_annotations": [
            {"device": 0, "name": "forward", "stage": stage, "time_us": 10**15 + at}
            for at, stage in ((2, "START"), (30, "END"))
        ],
    }


@cache
def _small_files() -> dict[str, str]:
    """report.json and a baseline of the small export."""
    with TemporaryDirectory() as folder:
        report = str(small_export(Path(folder) / "r.sqlite"))
        said = CliRunner().invoke(main, ["analyze", report, "--json"], catch_exceptions=False)
        base = Path(folder) / "baseline.json"
        words = ["check", report, "--baseline", str(base), "--update-baseline"]
        CliRunner().invoke(main, words, catch_exceptions=False)
        return {"report.json": said.stdout, "baseline.json": base.read_text()}


def _document(draw: Random, path: Path, text: str) -> Mutant:
    if draw.random() < 0.2:
        path.write_text(text)
        return Mutant(path=path, changes=_bytes_of(draw, path), by_bytes=True)
    document = json.loads(text)
    said = _changes(draw, document)
    path.write_text(json.dumps(document))
    return Mutant(path=path, changes=said, by_bytes=False)


def report_json(draw: Random, folder: Path) -> Mutant:
    """The file that `analyze` writes for `diff` and `check`."""
    return _document(draw, folder / "report.json", _small_files()["report.json"])


def baseline(draw: Random, folder: Path) -> Mutant:
    """A baseline of `check`, beside a report."""
    (folder / "report.json").write_text(_small_files()["report.json"])
    return _document(draw, folder / "baseline.json", _small_files()["baseline.json"])


def manifest(draw: Random, folder: Path) -> Mutant:
    """The manifest of a run's folder."""
    run = folder / "run"
    run.mkdir()
    small_export(run / "report.sqlite")
    document = {"schema": SCHEMA, "tool": "nsysflow", **asdict(RUN)}
    changed = _document(draw, run / FILE, json.dumps(document))
    return Mutant(path=run, changes=changed.changes, by_bytes=changed.by_bytes)


SETTINGS: Final = """
[analyze]
framework-gap-us = 30
no-files = true
own = ["train.py", "package"]
kernel-classes = "classes.toml"
steps = ["1:3", "!2:3"]
[check]
max = ["step_ms<=5", "idle_pct<50", "finding:sync-in-loop=none", "phase:step/forward.busy_ms<3"]
baseline = ["baseline.json"]
[profile]
trace = "cuda,nvtx"
"""
CLASSES: Final = """
[[class]]
name = "attention"
pattern = '^add'
"""


def settings(draw: Random, folder: Path) -> Mutant:
    """Settings and budgets in nsysflow.toml, and kernel classes, beside a report."""
    report = folder / "report.json"
    report.write_text(_small_files()["report.json"])
    small_export(folder / "r.sqlite")
    (folder / "baseline.json").write_text(_small_files()["baseline.json"])
    name, other = draw.sample(("nsysflow.toml", "classes.toml"), 2)
    held = {"nsysflow.toml": SETTINGS, "classes.toml": CLASSES}
    (folder / other).write_text(held[other])
    by_bytes = draw.random() < 0.2
    if by_bytes:
        (folder / name).write_text(held[name])
        return Mutant(path=report, changes=_bytes_of(draw, folder / name), by_bytes=True)
    lines = held[name].strip().splitlines()
    said = [change_lines(draw, lines) for _ in range(draw.choice((1, 1, 2, 5)))]
    text = "\n".join(lines)
    (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    return Mutant(path=report, changes=said, by_bytes=False)


def kept_answers(draw: Random, folder: Path) -> Mutant:
    """A report whose answers are kept in files that were changed."""
    report, kept = small_export(folder / "r.sqlite"), folder / "cache"
    kept.mkdir()
    variables = {VARIABLE: str(kept)}
    CliRunner().invoke(main, ["analyze", str(report), "--no-files"], env=variables)
    files = sorted(each for each in kept.rglob("*") if each.is_file())
    said = _bytes_of(draw, draw.choice(files)) if files else ["nothing was kept"]
    return Mutant(path=report, changes=said, by_bytes=True)


INPUTS: Final[dict[str, Callable[[Random, Path], Mutant]]] = {
    "sqlite": sqlite,
    "tables": tables_folder,
    "kineto": kineto,
    "rocpd": rocpd,
    "pftrace": pftrace,
    "snapshot": snapshot,
    "report.json": report_json,
    "baseline": baseline,
    "manifest": manifest,
    "settings": settings,
    "cache": kept_answers,
}
WEIGHTS: Final = (42, 8, 13, 8, 11, 5, 5, 2, 2, 3, 1)


def files_below(folder: Path) -> Iterator[Path]:
    """The files of a folder, in order."""
    return iter(sorted(each for each in folder.rglob("*") if each.is_file()))
