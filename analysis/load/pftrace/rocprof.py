"""A trace that rocprofv3 wrote (`--output-format pftrace`), or rocpd from a database, as canonical
frames.

A slice's category says what it is of, and its arguments the rest. An operation has the `corr_id` of
the call that launched it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kernel_names import VERSION, short_kernel_name
from nsysflow.analysis.load.marks import NCCL, on_known_threads, with_auto_domain
from nsysflow.analysis.load.pftrace.contents import Contents
from nsysflow.analysis.load.pftrace.tracks import at_possible_times, slices_of, threads_of
from nsysflow.analysis.load.rocpd.read import missing, sizes_along
from nsysflow.analysis.load.unpacking import ROCPROF
from nsysflow.analysis.trace import Note, NoteKind, Trace

KERNELS: Final = "kernel_dispatch"
_COPIES: Final = "memory_copy"
_CALLS: Final = "hip_api"
_LOWER_CALLS: Final = "hsa_api"
_MARKERS: Final = "marker_api"
_RCCL: Final = "rccl_api"
CATEGORIES: Final = (KERNELS, _COPIES, _CALLS, _LOWER_CALLS, _MARKERS, _RCCL)

_SIZES: Final = ("grid_size", "workgroup_size")
_NUMBERS: Final = (
    *("begin_ns", "end_ns", "corr_id", "ancestor_id", "tid", "queue", "stream_ID", "stream_id"),
    *("agent", "src_agent", "dst_agent", "copy_bytes", *_SIZES),
    *("LDS_Block_Size", "VGPR_Count"),
)
_WORDS: Final = ("agent", "src_agent", "dst_agent", *_SIZES)
ARGUMENTS: Final = frozenset((*_NUMBERS, *_WORDS))
"""Arguments of slices that are read."""

_STATED: Final = {
    "HOST_TO_DEVICE": "HtoD",
    "DEVICE_TO_HOST": "DtoH",
    "DEVICE_TO_DEVICE": "DtoD",
    "HOST_TO_HOST": "HtoH",
}
"""The direction of a copy by its name, `MEMORY_COPY_HOST_TO_DEVICE`."""

_MARKER_CALL: Final = r"^roctx[A-Z]\w*$"
"""Calls of ROCTX that open no range."""


def read_rocprof(contents: Contents, report: str) -> Trace:
    """What a trace of rocprofv3 says."""
    recorded = _with_arguments(contents)
    slices = at_possible_times(recorded)
    threads = threads_of(contents.names.tracks)
    slices = slices.with_columns(threads.placed(slices["track"], slices["tid"]))
    groups = slices.group_by("category", maintain_order=True)
    by_category = {str(category): rows for (category,), rows in groups}
    rows = {name: by_category.get(name, slices.clear()) for name in CATEGORIES}
    calls = rows[_CALLS].drop_nulls(["end_ns", "name"])
    around = pl.concat([rows[_LOWER_CALLS], rows[_CALLS]])
    kernels = _kernels(rows[KERNELS], calls, around)
    copies = _copies(rows[_COPIES], calls, around)
    ops = pl.concat([_ops(kernels, "kernel"), _ops(copies, "memcpy")])
    unusable = len(rows[KERNELS]) + len(rows[_COPIES]) - len(ops) + len(recorded) - len(slices)
    ranges, threadless = on_known_threads(_ranges(rows[_MARKERS], rows[_RCCL]))
    trace = Trace(
        report=report,
        ops=ops,
        shapes=kernels.select(_shape()).match_to_schema(schema.SHAPES),
        copy_details=copies.select(_copy_detail()).match_to_schema(schema.COPY_DETAILS),
        calls=_calls(calls),
        ranges=ranges,
        threads=threads.named,
        devices=_devices(ops),
        collector="rocprof",
        source="rocprofv3 (Perfetto)",
    )
    return replace(trace, notes=(*_notes(trace, unusable=unusable), *threadless))


def _with_arguments(contents: Contents) -> pl.DataFrame:
    """`SLICES` plus their arguments: a column for each number, and for each word `<name>_word`."""
    slices = slices_of(contents.events)
    arguments = contents.arguments_of(slices["row"], _NUMBERS, _WORDS)
    slices = slices.rename({"start_ns": "from_ns", "end_ns": "to_ns"}).hstack(arguments)
    return slices.with_columns(
        pl.coalesce("begin_ns", "from_ns").alias("start_ns"),
        pl.coalesce("end_ns", "to_ns").alias("end_ns"),
    )


def _agent(side: str) -> pl.Expr:
    """The number of an agent, which is written alone or behind a word: `GPU-0`, `Agent-4`."""
    number = pl.col(f"{side}_word").cast(pl.String).str.extract(r"(\d{1,9})$")
    return pl.coalesce(number.cast(pl.Int64), side).cast(pl.Int32, strict=False)


def _stream() -> pl.Expr:
    """The stream; older versions write only the queue."""
    return pl.coalesce("stream_ID", "stream_id", "queue")


def _kernels(rows: pl.DataFrame, calls: pl.DataFrame, around: pl.DataFrame) -> pl.DataFrame:
    """The usable kernels plus what `_ops` and `_shape` read."""
    rows = rows.with_columns(_agent("agent").alias("device"))
    rows = rows.drop_nulls(["end_ns", "name", "device"])
    short = pl.col("name").cast(pl.String).map_elements(short_kernel_name, pl.String)
    names = rows.select(pl.col("name").unique()).with_columns(
        short.cast(pl.Categorical).alias("short_name")
    )
    rows = rows.join(names, on="name", how="left", maintain_order="left")
    return _correlated(rows, calls, around)


def _copies(rows: pl.DataFrame, calls: pl.DataFrame, around: pl.DataFrame) -> pl.DataFrame:
    """The usable copies plus what `_ops` and `_copy_detail` read."""
    source, target = _agent("src_agent"), _agent("dst_agent")
    named = pl.col("name").cast(pl.String).str.to_uppercase()
    stated = named.str.extract(r"((?:HOST|DEVICE)_TO_(?:HOST|DEVICE))").replace_strict(
        _STATED, default="unknown", return_dtype=pl.String
    )
    from_gpu, to_gpu = stated.str.starts_with("D"), stated.str.ends_with("D")
    peers = (stated == "DtoD") & (source != target)
    direction = pl.when(peers).then(pl.lit("PtoP")).otherwise(stated).alias("direction")
    device = pl.when(to_gpu).then(target).when(from_gpu).then(source).alias("device")
    rows = rows.with_columns(direction, device).drop_nulls(["end_ns", "device"])
    name = pl.format("memcpy {}", "direction").cast(pl.Categorical)
    rows = rows.with_columns(name.alias("name"), name.alias("short_name"))
    return _correlated(rows, calls, around)


def _correlated(rows: pl.DataFrame, calls: pl.DataFrame, around: pl.DataFrame) -> pl.DataFrame:
    """`rows` plus `correlation`: of the HIP call that they are of, or of that around the lower call
    that they are of."""
    known = calls["corr_id"].drop_nulls().unique()
    own = pl.col("corr_id")
    if not rows.select((own != 0) & ~own.is_in(known.implode())).to_series().any():
        return rows.with_columns(_correlation())
    outer = around.select("corr_id", "ancestor_id").drop_nulls().unique("corr_id", keep="first")
    rows = rows.drop("ancestor_id").join(outer, on="corr_id", how="left", maintain_order="left")
    inner = own.is_in(known.implode()) | ~pl.col("ancestor_id").is_in(known.implode())
    caller = pl.when(inner.fill_null(value=True)).then(own).otherwise("ancestor_id")
    return rows.with_columns(caller.alias("corr_id")).with_columns(_correlation())


def _correlation() -> pl.Expr:
    number = pl.col("corr_id")
    return pl.when(number != 0).then(number).alias("correlation")


def _ops(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """`schema.OPS` of kernels or copies."""
    columns = {
        "kind": pl.lit(kind),
        "stream": _stream(),
        "graph_node": pl.lit(None),
        "detail": pl.int_range(pl.len()),
    }
    return rows.select(
        columns.get(name, pl.col(name)).cast(dtype).alias(name)
        for name, dtype in schema.OPS.items()
    )


def _shape() -> Iterator[pl.Expr]:
    """`schema.SHAPES`. A grid is counted in threads. rocprofv3 writes only how many there are: they
    stand in x."""
    for axis in "xyz":
        alone = pl.col if axis == "x" else lambda _: pl.lit(1)
        written = {
            name: pl.coalesce(
                pl.col(f"{name}_word")
                .cast(pl.String)
                .str.extract(rf"{axis}=(\d{{1,9}})")
                .cast(pl.Int64),
                pl.when(pl.col(name).is_not_null()).then(alone(name)),
            )
            for name in _SIZES
        }
        yield from sizes_along(axis, written["grid_size"], written["workgroup_size"])
    yield pl.col("VGPR_Count").cast(pl.Int32, strict=False).alias("registers")
    yield pl.col("LDS_Block_Size").alias("shared_bytes")


def _copy_detail() -> Iterator[pl.Expr]:
    """`schema.COPY_DETAILS`; whether the host's memory is pinned is not recorded."""
    yield pl.col("copy_bytes").alias("bytes")
    yield pl.col("direction")
    on_gpu = {"source_memory": "^[DP]", "target_memory": "[DP]$"}
    for column, pattern in on_gpu.items():
        memory = pl.when(pl.col("direction").str.contains(pattern)).then(pl.lit("device"))
        yield memory.cast(schema.MEMORY_KIND).alias(column)


def _calls(rows: pl.DataFrame) -> pl.DataFrame:
    """`schema.CALLS`."""
    name = pl.col("name").cast(pl.String).str.replace(VERSION.pattern, "").cast(pl.Categorical)
    columns = ("start_ns", "end_ns", "process", "thread")
    return rows.select(*columns, _correlation(), name.alias("name")).match_to_schema(schema.CALLS)


def _ranges(markers: pl.DataFrame, rccl: pl.DataFrame) -> pl.DataFrame:
    """`schema.RANGES`: markers with a text, and RCCL's calls."""
    name = pl.col("name").cast(pl.String)
    markers = markers.filter(~name.str.contains(_MARKER_CALL))
    rows = pl.concat(
        rows.drop_nulls("name").with_columns(pl.lit(domain, pl.String).alias("domain"))
        for rows, domain in ((markers, None), (rccl, NCCL))
    )
    ranges = rows.select(
        "start_ns",
        "end_ns",
        pl.lit("push_pop", schema.RANGE_KIND).alias("kind"),
        "process",
        "thread",
        "domain",
        name.alias("name"),
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
    )
    return with_auto_domain(ranges.match_to_schema(schema.RANGES))


def _devices(ops: pl.DataFrame) -> pl.DataFrame:
    """The GPUs that did something; only their numbers are known."""
    used = ops.select(pl.col("device").unique().sort())
    return used.with_columns(
        pl.lit(None, dtype).alias(name)
        for name, dtype in schema.DEVICES.items()
        if name != "device"
    ).match_to_schema(schema.DEVICES)


def _notes(trace: Trace, *, unusable: int) -> Iterator[Note]:
    yield from missing(trace, "trace", unusable=unusable)
    yield Note(
        NoteKind.NOT_CARRIED,
        "rocprofv3's Perfetto trace names no GPU, so no peak is known, and not the kernels of a HIP"
        " graph by its nodes; of a kernel's grid and block it may have only the product; where two"
        " kernels of a queue overlap, it has cut both in the middle; and no copy is called"
        f" pageable. A rocpd database has more: {ROCPROF}",
    )
