"""What calls, and the operations of GPUs, say: each event a row.

An operation of a CUDA graph may also say what the program called it when it captured the graph:
`torch.cuda.graph_annotations` writes that beside the operations of replays (spec §7.16).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kernel_names import VERSION, short_kernel_name
from nsysflow.analysis.load.kineto.columns import (
    Places,
    ids,
    ints,
    numbered,
    sizes,
    spans_of,
    words,
)
from nsysflow.analysis.load.kineto.document import (
    CALLS,
    Args,
    Event,
    OddEvent,
    args_of_all,
    call_args_of_all,
    frame_of,
)

_COPY: Final = re.compile(r"Memcpy (\w+)(?: \((.+) -> (.+)\))?")
_MEMORY: Final = {
    **{kind: kind for kind in schema.MEMORY_KIND.categories},
    "device static": "device",
    "managed static": "managed",
}

PLACED: Final = pl.Schema(
    {
        **{name: dtype for name, dtype in schema.OPS.items() if name not in ("process", "detail")},
        "captured_as": pl.String(),
    }
)
"""Of an operation, what its event says; `captured_as` is what the program called it when a graph
was captured."""

KERNEL: Final = pl.Schema({**PLACED, **schema.SHAPES})
COPIED: Final = pl.Schema({**PLACED, **schema.COPY_DETAILS})


def _kernels(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of kernels say: `PLACED` and `schema.SHAPES`."""
    args = args_of_all(events)
    names = [str(event.name) for event in events]
    name, short_name = words(names, str, short_kernel_name)
    placed = _placed(events, args, "kernel", name, short_name)
    grid, block = (
        sizes([getattr(each, what) for each in args]).select(pl.all().name.prefix(f"{what}_"))
        for what in ("grid", "block")
    )
    return placed.with_columns(
        *grid,
        *block,
        ints([each.registers for each in args]).alias("registers"),
        ints([each.shared_memory for each in args]).alias("shared_bytes"),
    )


def _copies(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of copies say: `PLACED` and `schema.COPY_DETAILS`."""
    args = args_of_all(events)
    names, at = numbered(str(event.name) for event in events)
    sides = frame_of(map(_copy_sides, names), _SIDES)[at]
    name = sides.select(pl.format("memcpy {}", "direction").alias("name"))["name"]
    moved = ints([each.bytes for each in args]).alias("bytes")
    return _placed(events, args, "memcpy", name, name).hstack(sides).with_columns(moved)


_SIDES: Final = pl.Schema(
    {name: dtype for name, dtype in schema.COPY_DETAILS.items() if name != "bytes"}
)


def _memsets(events: Sequence[Event]) -> pl.DataFrame:
    """What the events of memsets say: `PLACED`."""
    name = pl.repeat("memset", len(events), eager=True)
    return _placed(events, args_of_all(events), "memset", name, name)


def _placed(
    events: Sequence[Event], args: Sequence[Args], kind: str, name: pl.Series, short_name: pl.Series
) -> pl.DataFrame:
    """When and where operations ran, under these names.

    Raises:
        OddEvent: one has no time or no GPU.
    """
    device = ints(
        [
            event.pid if each.device is None else each.device
            for event, each in zip(events, args, strict=True)
        ]
    ).cast(pl.Int32, strict=False)
    if device.null_count():
        raise OddEvent("no GPU")
    stream = [
        each.stream if each.original_stream is None else each.original_stream for each in args
    ]
    return spans_of(events).with_columns(
        pl.lit(kind).alias("kind"),
        device.alias("device"),
        ints(stream).alias("stream"),
        ids([each.correlation for each in args]).alias("correlation"),
        ids([each.graph_node for each in args]).alias("graph_node"),
        name.alias("name"),
        short_name.alias("short_name"),
        captured_as=pl.Series(
            [_captured_as(each) if each.name or each.text else None for each in args],
            dtype=pl.String,
        ),
    )


def _captured_as(args: Args) -> str | None:
    """What an operation of a graph is called; None without a name."""
    named = args.name if isinstance(args.name, str) else args.text
    return named if isinstance(named, str) and named else None


def _copy_sides(name: str) -> tuple[str | None, ...]:
    """Direction and memory kinds, from a name such as `Memcpy HtoD (Pageable -> Device)`."""
    match = _COPY.match(name)
    direction, *sides = match.groups() if match else ("unknown", None, None)
    return direction, *map(_memory, sides)


def _memory(side: str | None) -> str | None:
    return None if side is None else _MEMORY.get(side.lower(), "unknown")


CALLED: Final = pl.Schema(
    {
        **{n: schema.CALLS[n] for n in ("start_ns", "end_ns", "correlation", "name")},
        "place": pl.UInt32(),
    }
)
"""Of a call, what its event says; `place` is the number of its pid and tid."""


def _calls(events: Sequence[Event], places: Places) -> pl.DataFrame:
    """`CALLED`, but for the order of columns."""
    names = [str(event.name) for event in events]
    (name,) = words(names, partial(VERSION.sub, ""))
    return spans_of(events).with_columns(
        places.column(events).alias("place"),
        ids([args.correlation for args in call_args_of_all(events)]).alias("correlation"),
        name.alias("name"),
    )


Rows = Callable[[Sequence[Event]], pl.DataFrame]
"""Makes the rows of some events."""


def rows_by_category(places: Places) -> Mapping[str, tuple[pl.Schema, Rows]]:
    """The columns of calls and operations, and what makes them; `places` gets those of calls."""
    calls = partial(_calls, places=places)
    return {
        **dict.fromkeys(CALLS, (CALLED, calls)),
        "kernel": (KERNEL, _kernels),
        "gpu_memcpy": (COPIED, _copies),
        "gpu_memset": (PLACED, _memsets),
    }


def graph_annotations(ops: pl.DataFrame, names: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.GRAPH_NODES` and the `schema.RANGES` in which they were captured.

    The trace does not say when that was. The ranges lie one after the other before the first
    operation, each of 2 ns, and their nodes are made in the middle.

    Args:
        ops: `schema.OPS`.
        names: what the program called each of these, the column `captured_as`.
    """
    nodes = (
        ops.select("process", names.alias("name"), node="graph_node")
        .drop_nulls()
        .unique(["process", "node"], keep="first", maintain_order=True)
    )
    if nodes.is_empty():
        return schema.GRAPH_NODES.to_frame(), schema.RANGES.to_frame()
    ranges = nodes.select("process", "name").unique(maintain_order=True).with_row_index("row")
    first_ns = pl.lit(ops["start_ns"].min(), pl.Int64)
    ranges = ranges.with_columns(
        (first_ns - 2 * (pl.len() - pl.col("row").cast(pl.Int64))).alias("start_ns"),
        (pl.col("process") | schema.os_pid(pl.col("process"))).alias("thread"),  # the main one
    )
    made = nodes.join(ranges, on=["process", "name"], maintain_order="left").select(
        *("process", "thread", "node"),
        start_ns=pl.col("start_ns") + 1,
        original=pl.lit(None, pl.Int64),
    )
    opened = ranges.with_columns(
        end_ns=pl.col("start_ns") + 2,
        kind=pl.lit("push_pop", schema.RANGE_KIND),
        domain=pl.lit(None, pl.String),
    )
    return made.match_to_schema(schema.GRAPH_NODES), opened.match_to_schema(schema.RANGES)
