"""A rocpd database of rocprofv3 as canonical frames.

A call and what it launched share the `stack_id` of their events. Calls are those of HIP. Ranges are
those of ROCTX, and RCCL's calls, as those of NCCL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.columns import scatter_table
from nsysflow.analysis.frames.scratch import Scratch, in_files
from nsysflow.analysis.load.kernel_names import VERSION, short_kernel_name
from nsysflow.analysis.load.marks import NCCL, with_auto_domain
from nsysflow.analysis.load.rocpd.tables import (
    MARKER,
    THREE,
    Frames,
    categories_of,
    extra_value,
    read_tables,
)
from nsysflow.analysis.schema import ID_BITS, ID_MASK, is_possible
from nsysflow.analysis.trace import Note, NoteKind, Trace

_KNOWN_SCHEMA: Final = 4

_SPARSE: Final = 8
"""Numbers of so many times the rows of their table are joined, not looked up by their place."""

_CALL: Final = r"(?i)hip\w*api"
_RCCL: Final = r"(?i)rccl"
"""Categories of regions: `HIP_RUNTIME_API_EXT`, `RCCL_API`."""

_UNPLACED: Final = (
    "{} calls and ranges were left out: they have no possible start or end, or are ranges of no"
    " known thread"
)

_ACROSS_THREADS: Final = r"(?i)process|RangeStart"
"""Operations of ROCTX whose ranges end on any thread."""


def read_rocpd(path: Path, shown: str, report: str, scratch: Scratch | None = None) -> Trace:
    """The database at `path`, which messages call `shown`.

    Raises:
        Damaged: it is truncated or corrupt.
        Busy: another program is writing it.
        Incomplete: it lacks a table or column that every database has.
    """
    raws, left_out = read_tables(path, shown, scratch)
    traces = [_trace_of(report, raw) for raw in raws]
    trace = traces[0] if len(traces) == 1 else _together(traces)
    rows = sum(len(raw[field]) for raw in raws for field in ("kernels", "copies"))
    notes = [note for of_process in traces for note in of_process.notes]
    notes += _notes(trace, raws[0]["metadata"], unusable=rows - len(trace.ops))
    if left_out:
        text = f"what cannot be used was left out: {'; '.join(left_out)}"
        notes.append(Note(NoteKind.UNREAD_TABLES, text))
    return replace(trace, ops=in_files(trace.ops, scratch), notes=tuple(notes))


def _trace_of(report: str, raw: Frames) -> Trace:
    """What one process did."""
    regions = _on_threads(_placed(raw["regions"], raw), raw).drop_nulls(["start_ns", "end_ns"])
    ranges = _ranges(regions, raw)
    on_threads = ranges.drop_nulls("thread")
    unplaced = len(raw["regions"]) - len(regions) + len(ranges) - len(on_threads)
    calls = _named(_of_categories(regions, raw, _CALL), raw)
    kernels = _kernels(raw, calls)
    copies = _copies(raw, calls)
    ops = pl.concat([_ops(kernels, "kernel"), _ops(copies, "memcpy")])
    version = _version(raw["metadata"])
    return Trace(
        report=report,
        ops=ops,
        shapes=kernels.select(_shape()).match_to_schema(schema.SHAPES),
        copy_details=copies.select(_copy_detail()).match_to_schema(schema.COPY_DETAILS),
        calls=_calls(calls),
        ranges=on_threads,
        threads=_threads(raw),
        devices=_devices(raw["agents"], ops),
        collector="rocprof",
        source=f"rocprofv3 (rocpd), schema {version or 'unknown'}",
        notes=(Note(NoteKind.UNUSABLE_ROWS, _UNPLACED.format(unplaced)),) * bool(unplaced),
    )


def _of_categories(regions: pl.DataFrame, raw: Frames, pattern: str) -> pl.DataFrame:
    """The regions whose category matches."""
    ids = categories_of(raw).filter(pl.col("category").str.contains(pattern))["id"]
    return regions.filter(pl.col("category_id").is_in(ids.implode()))


def _named(regions: pl.DataFrame, raw: Frames) -> pl.DataFrame:
    """`regions` plus `name`, those that have one."""
    names = raw["strings"].select("id", pl.col("string").cast(pl.Categorical).alias("name"))
    return _looked_up(regions, "name_id", names).drop_nulls("name")


def _looked_up(rows: pl.DataFrame, number: str, table: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus the columns of `table` (but its `id`) of the row with that number.

    Numbers mostly count the rows of a table, which are then found by their place: a join of 3 M
    rows takes several times as long.
    """
    ids = table["id"]
    least, most = ids.min(), ids.max()
    if not isinstance(least, int) or not isinstance(most, int):
        return rows.with_columns(
            pl.lit(None, dtype).alias(name) for name, dtype in table.drop("id").schema.items()
        )
    if most - least >= _SPARSE * (len(ids) + 1):
        first = table.unique("id", keep="first")
        return rows.join(first, left_on=number, right_on="id", how="left", maintain_order="left")
    table = table.drop_nulls("id")
    at = rows[number] - least
    at = at.set((at < 0) | (at > most - least), None).cast(pl.UInt32)
    if most - least + 1 > len(table) or not table["id"].is_sorted():
        place = pl.int_range(len(table), dtype=pl.UInt32, eager=True)
        at = scatter_table(most - least + 1, (table["id"] - least).cast(pl.UInt32), place).gather(
            at
        )
    return rows.hstack(table.select(pl.exclude("id").gather(at)))


def _placed(rows: pl.DataFrame, raw: Frames) -> pl.DataFrame:
    """`rows` of events, with their place filled in from their tracks and their times from the table
    of times, plus `start_ns`, `end_ns`, `process`, and what their events say (`stack_id`, …)."""
    placed = _looked_up(rows, "event_id", raw["events"])
    if rows["track_id"].null_count() < len(rows):
        place = [name for name in raw["tracks"].columns if name in rows.columns]
        tracks = raw["tracks"].select("id", pl.col(place).name.prefix("_"))
        placed = _looked_up(placed, "track_id", tracks)
        placed = placed.with_columns(pl.coalesce(name, f"_{name}") for name in place)
    for side in ("start", "end"):
        if rows[f"{side}_id"].null_count() < len(rows):
            times = raw["times"].select("id", pl.col("value").alias(f"_{side}"))
            placed = _looked_up(placed, f"{side}_id", times)
            placed = placed.with_columns(pl.coalesce(side, f"_{side}"))
    process = raw["processes"].select("id", pl.col("pid").alias("os_pid"))
    placed = _looked_up(placed, "pid", process)
    return placed.with_columns(
        _possible("start"),
        _possible("end"),
        _process(pl.coalesce("os_pid", "pid")).alias("process"),
    )


def _possible(side: str) -> pl.Expr:
    """`start_ns` or `end_ns`; null where the time is impossible."""
    time = pl.col(side)
    return pl.when(is_possible(time)).then(time).alias(f"{side}_ns")


def _on_threads(regions: pl.DataFrame, raw: Frames) -> pl.DataFrame:
    """`regions` plus `thread`."""
    threads = raw["threads"].select("id", pl.col("tid").alias("os_tid"))
    tid = pl.coalesce("os_tid", "tid") & ID_MASK
    return _looked_up(regions, "tid", threads).with_columns(thread=pl.col("process") + tid)


def _process(pid: pl.Expr) -> pl.Expr:
    """The key of a process."""
    return (pid & ID_MASK) * (1 << ID_BITS)


def _correlated(ops: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`ops` plus `correlation`: of the HIP call that they are of or that is around that, if it was
    recorded."""
    own, around = pl.col("stack_id"), pl.col("parent_stack_id")
    if not (ops["parent_stack_id"].fill_null(0) != 0).any():
        return ops.with_columns(_number(own))
    known = calls.filter(pl.col("stack_id") != 0)["stack_id"].unique().implode()
    inner = own.is_in(known) | ~around.is_in(known).fill_null(value=False)
    return ops.with_columns(_number(pl.when(inner).then(own).otherwise(around)))


def _number(stack: pl.Expr) -> pl.Expr:
    """The correlation id that a `stack_id` is; 0 is none."""
    return pl.when(stack != 0).then(stack).alias("correlation")


def _kernels(raw: Frames, calls: pl.DataFrame) -> pl.DataFrame:
    """The usable kernels plus what `_ops` and `_shape` read."""
    symbols = raw["symbols"]
    name = pl.coalesce("display_name", pl.col("kernel_name").str.strip_suffix(".kd"))
    symbols = symbols.select(
        "id",
        "arch_vgpr_count",
        name.cast(pl.Categorical).alias("name"),
        name.map_elements(short_kernel_name, pl.String).cast(pl.Categorical).alias("short_name"),
    )
    kernels = _correlated(_placed(raw["kernels"], raw), calls)
    kernels = _looked_up(kernels, "kernel_id", symbols)
    kernels = _looked_up(kernels, "agent_id", _gpus(raw["agents"]))
    return kernels.drop_nulls(["start_ns", "end_ns", "device", "name"])


def _copies(raw: Frames, calls: pl.DataFrame) -> pl.DataFrame:
    """The usable copies of GPUs plus what `_ops` and `_copy_detail` read."""
    copies = _correlated(_placed(raw["copies"], raw), calls)
    gpus = _gpus(raw["agents"])
    for side in ("src", "dst"):
        copies = _looked_up(copies, f"{side}_agent_id", gpus.rename({"device": side}))
    source, target = pl.col("src"), pl.col("dst")
    direction = (
        pl.when(source == target)
        .then(pl.lit("DtoD"))
        .when(source.is_not_null() & target.is_not_null())
        .then(pl.lit("PtoP"))
        .when(target.is_not_null())
        .then(pl.lit("HtoD"))
        .otherwise(pl.lit("DtoH"))
    )
    name = pl.format("memcpy {}", direction)
    copies = copies.with_columns(
        direction.alias("direction"),
        pl.coalesce("dst", "src").alias("device"),
        name.alias("name"),
        name.alias("short_name"),
    )
    return copies.drop_nulls(["start_ns", "end_ns", "device"])


def _ops(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """`schema.OPS` of kernels or copies."""
    node = pl.col("graph_node_id")
    columns = {
        "kind": pl.lit(kind),
        "stream": pl.col("stream_id"),
        "graph_node": pl.when(node != 0).then(node),
        "detail": pl.int_range(pl.len()),
    }
    return rows.select(
        columns.get(name, pl.col(name)).cast(dtype).alias(name)
        for name, dtype in schema.OPS.items()
    )


def _shape() -> Iterator[pl.Expr]:
    """`schema.SHAPES`: rocpd counts a grid in threads."""
    for axis in THREE:
        yield from sizes_along(axis, pl.col(f"grid_size_{axis}"), pl.col(f"workgroup_size_{axis}"))
    yield pl.col("arch_vgpr_count").cast(pl.Int32, strict=False).alias("registers")
    yield pl.col("group_segment_size").alias("shared_bytes")


def sizes_along(axis: str, threads: pl.Expr, block: pl.Expr) -> Iterator[pl.Expr]:
    """`grid_<axis>` and `block_<axis>` of `schema.SHAPES`, of a grid that is counted in threads."""
    blocks = pl.when(block > 0).then((threads + block - 1) // block)
    yield blocks.cast(pl.Int32, strict=False).alias(f"grid_{axis}")
    yield block.cast(pl.Int32, strict=False).alias(f"block_{axis}")


def _copy_detail() -> Iterator[pl.Expr]:
    """`schema.COPY_DETAILS`; whether the host's memory is pinned is not recorded."""
    yield pl.col("size").alias("bytes")
    yield pl.col("direction")
    for column, side in (("source_memory", "src"), ("target_memory", "dst")):
        on_gpu = pl.when(pl.col(side).is_not_null()).then(pl.lit("device"))
        yield on_gpu.cast(schema.MEMORY_KIND).alias(column)


def _calls(calls: pl.DataFrame) -> pl.DataFrame:
    """`schema.CALLS`."""
    names = calls.select(pl.col("name").unique()).with_columns(
        pl.col("name").cast(pl.String).str.replace(VERSION.pattern, "").alias("plain")
    )
    if (names["name"].cast(pl.String) != names["plain"]).any():
        plain = pl.col("plain").cast(pl.Categorical).alias("name")
        calls = calls.join(names, on="name", maintain_order="left").with_columns(plain)
    columns = ("start_ns", "end_ns", "process", "thread")
    return calls.select(*columns, _number(pl.col("stack_id")), "name").match_to_schema(schema.CALLS)


def _ranges(regions: pl.DataFrame, raw: Frames) -> pl.DataFrame:
    """`schema.RANGES`: markers with a text, and RCCL's calls."""
    rows = _named(_of_categories(regions, raw, f"{MARKER}|{_RCCL}"), raw)
    rows = _looked_up(rows, "event_id", raw["messages"])
    rows = _looked_up(rows, "category_id", categories_of(raw))
    rccl = pl.col("category").str.contains(_RCCL)
    across = pl.col("name").cast(pl.String).str.contains(_ACROSS_THREADS)
    kind = pl.when(across & ~rccl).then(pl.lit("start_end")).otherwise(pl.lit("push_pop"))
    rows = rows.filter(rccl | pl.col("message").is_not_null())
    ranges = rows.select(
        "start_ns",
        "end_ns",
        kind.cast(schema.RANGE_KIND).alias("kind"),
        "process",
        "thread",
        pl.when(rccl).then(pl.lit(NCCL)).alias("domain"),
        pl.when(rccl).then(pl.col("name").cast(pl.String)).otherwise("message").alias("name"),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
    )
    return with_auto_domain(ranges.match_to_schema(schema.RANGES))


def _threads(raw: Frames) -> pl.DataFrame:
    """`schema.THREADS`."""
    processes = raw["processes"].select("id", pl.col("pid").alias("os_pid"))
    named = _looked_up(raw["threads"], "pid", processes).drop_nulls(["name", "tid"])
    process = _process(pl.coalesce("os_pid", "pid"))
    thread = process + (pl.col("tid") & ID_MASK)
    return named.select(process.alias("process"), thread.alias("thread"), "name")


def _gpus(agents: pl.DataFrame) -> pl.DataFrame:
    """`id`, `device` of the agents that are GPUs."""
    count = pl.int_range(pl.len()).alias("count")
    gpus = agents.filter(pl.col("type") == "GPU").sort("id").with_columns(count)
    device = pl.coalesce("type_index", "logical_index", "count")
    return gpus.select("id", device.cast(pl.Int32, strict=False).alias("device"))


def _devices(agents: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """The GPUs that did something."""
    gpus = _looked_up(_gpus(agents), "id", agents)
    used = gpus.filter(pl.col("device").is_in(ops["device"].unique().implode()))
    return (
        used.select(
            "device",
            pl.coalesce("product_name", "name").alias("name"),
            pl.lit(None, pl.String).alias("uuid"),
            extra_value("extdata", "cu_count", int).cast(pl.Int32, strict=False).alias("sm_count"),
            pl.lit(None, pl.Int64).alias("memory_bytes_per_s"),
        )
        .unique("device", keep="first")
        .sort("device")
    )


def _together(traces: Sequence[Trace]) -> Trace:
    """The processes of one database as one trace."""
    ops, kernels, copies = [], 0, 0
    for trace in traces:
        before = pl.when(pl.col("kind") == "kernel").then(kernels).otherwise(copies)
        ops.append(trace.ops.with_columns(pl.col("detail") + before.cast(pl.UInt32)))
        kernels, copies = kernels + len(trace.shapes), copies + len(trace.copy_details)
    row = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")
    return replace(
        traces[0],
        ops=pl.concat(ops),
        shapes=pl.concat(trace.shapes for trace in traces),
        copy_details=pl.concat(trace.copy_details for trace in traces),
        calls=pl.concat(trace.calls for trace in traces),
        ranges=pl.concat(trace.ranges for trace in traces).with_columns(row),
        threads=pl.concat(trace.threads for trace in traces),
        devices=pl.concat(trace.devices for trace in traces)
        .unique("device", keep="first")
        .sort("device"),
    )


def _version(metadata: pl.DataFrame) -> str:
    versions = metadata.filter(pl.col("tag") == "schema_version")["value"].drop_nulls()
    return str(versions[0]) if len(versions) else ""


def _notes(trace: Trace, metadata: pl.DataFrame, *, unusable: int) -> Iterator[Note]:
    version = _version(metadata)
    major = version.partition(".")[0]
    # a damaged one may have thousands of digits, more than `int` takes
    if major.isdecimal() and int(major[:9]) > _KNOWN_SCHEMA:
        yield Note(
            NoteKind.NEWER_SCHEMA,
            f"the database has schema {version}; this version of nsysflow knows up to"
            f" {_KNOWN_SCHEMA}.x",
        )
    yield from missing(trace, "database", unusable=unusable)
    if not trace.copy_details.is_empty():
        yield Note(
            NoteKind.NOT_CARRIED,
            "rocpd does not say whether the host's memory of a copy is pinned, so no copy is called"
            " pageable",
        )


def missing(trace: Trace, kind: str, *, unusable: int) -> Iterator[Note]:
    """Notes on what a recording of rocprofv3 lacks; `kind` is what its file is called."""
    if trace.ops.is_empty() and unusable:
        yield Note(
            NoteKind.NO_GPU_WORK,
            f"no GPU work can be shown: none of the {unusable} operations in this {kind} is usable",
        )
    elif trace.ops.is_empty():
        yield Note(
            NoteKind.NO_GPU_WORK,
            f"no GPU work in this {kind}; was it recorded with --kernel-trace and"
            " --memory-copy-trace?",
        )
    elif trace.calls.is_empty():
        yield Note(
            NoteKind.NO_CALLS,
            f"no HIP calls in this {kind}, so why the GPU idled is unknown; record with"
            " --hip-trace",
        )
    if trace.ranges.is_empty():
        yield Note(
            NoteKind.NO_RANGES,
            f"no ROCTX ranges in this {kind}; record with --marker-trace, and name phases with"
            " torch.cuda.nvtx, which is ROCTX on AMD, or with roctx",
        )
    if unusable:
        yield Note(
            NoteKind.UNUSABLE_ROWS,
            f"{unusable} rows were left out: they have no possible time, no GPU or no name",
        )
