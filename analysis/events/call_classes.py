"""The class of a CUDA call: by its name, corrected by what it launched (spec §3)."""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES, Cause
from nsysflow.analysis.frames.lookup import greatest, matching, scatter_table
from nsysflow.analysis.schema import CAUSE

COPY: Final = r"^(?:cuda|cu)Memcpy"
GRAPH_LAUNCH: Final = r"^(?:cuda|cu)GraphLaunch"

SYNC_AFTER_NS: Final = 50_000
"""A sync that starts within 50 us of an asynchronous copy makes it a blocking one (spec §4.5); one
after a blocking copy is of that copy's line (§11.5). Tracks on the axis are further apart than this
and `--framework-gap-us`. No other rule looks ahead."""

LAZY_LOAD_NS: Final = 1_000_000
"""A kernel's first launch call over 1 ms spent that time loading its code (spec §3)."""


def class_by_name(name: pl.Expr) -> pl.Expr:
    """The class of a call by its name without suffix, as far as the name decides.

    Classes have the names of the causes that they make. A call of no other class is `api`.
    """
    classes = [
        pl.when(makes(cause, name)).then(pl.lit(cause.name))
        for cause in CAUSES.values()
        if cause.calls is not None
    ]
    return pl.coalesce(*classes, pl.lit("api")).cast(CAUSE)


def makes(cause: Cause, name: pl.Expr) -> pl.Expr:
    """Whether a call of that name makes the cause."""
    found = name.str.contains(f"^(?:{cause.calls})$")
    return found & ~name.str.contains(cause.calls_not) if cause.calls_not else found


def with_class_by_name(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` plus `class`; each distinct name is classified once."""
    names = calls.select(pl.col("name").unique())
    classes = names.select(class_by_name(_text())).to_series()
    code = names["name"].to_physical()
    table = scatter_table(greatest(code) + 1, code, classes)
    return calls.with_columns(table.gather(calls["name"].to_physical()).alias("class"))


def refine_classes(calls: pl.DataFrame, ops: pl.DataFrame, pageable: pl.Series) -> pl.DataFrame:
    """`calls` with `class` corrected by the operations that they launched.

    A launch of a copy from or to pageable memory is a `blocking_copy`. The first launch of a kernel
    in its process is a `module_load` if it took over 1 ms.

    Args:
        calls: with `call`, its own row number, and `class` by name.
        ops: with `call`, their launch's row in `calls`.
        pageable: rows of `calls` whose copy has a pageable side.
    """
    launch = pl.col("class") == "launch"
    copies = _rows(calls, pageable).filter(launch & _text().str.contains(COPY))
    loads = _rows(calls, _first_slow_launches(calls, ops)).filter(launch)
    classes = calls["class"]
    for rows, name in ((copies, "blocking_copy"), (loads, "module_load")):
        if not rows.is_empty():
            classes = classes.scatter(rows["call"], name)
    return calls.with_columns(classes)


def _text() -> pl.Expr:
    """The call's name as text."""
    return pl.col("name").cast(pl.String)


def _rows(calls: pl.DataFrame, rows: pl.Series) -> pl.DataFrame:
    return calls[rows.unique().sort()]


def _first_slow_launches(calls: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Rows of `calls` over 1 ms that are the first launch of their kernel in their process.

    If two begin together, the longer counts, then the one with the smaller correlation id.
    """
    slow = calls.filter(pl.col("end_ns") - pl.col("start_ns") > LAZY_LOAD_NS)
    if slow.is_empty():
        return pl.Series("call", [], dtype=pl.UInt32)
    is_slow = scatter_table(
        len(calls), slow["call"], pl.repeat(value=True, n=len(slow), eager=True)
    )
    kernels = ops.select("kind", "process", "name", "call", "launch_start_ns").filter(
        pl.col("kind") == "kernel", pl.col("call").is_not_null()
    )
    suspects = kernels.filter(is_slow.gather(kernels["call"]).is_not_null())
    launches = kernels.filter(pl.col("name").is_in(suspects["name"].unique().implode()))
    launches = launches.filter(~matching(calls["name"], GRAPH_LAUNCH).gather(launches["call"]))
    called = calls.select("end_ns", "correlation")[launches["call"]]
    order = ["launch_start_ns", "end_ns", "correlation", "call"]
    first = (
        launches.hstack(called)
        .sort(order, descending=[False, True, False, False])
        .unique(["process", "name"], keep="first", maintain_order=True)
    )
    return first.join(slow, on="call", how="semi")["call"]
