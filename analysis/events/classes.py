"""The class of a call of CUDA or HIP (spec §3), and in which part of the accounting an operation
counts (§2).
"""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES, RUNTIME, Cause
from nsysflow.analysis.frames.columns import (
    DescribedRows,
    enum_from_index,
    greatest,
    matching,
    repeated,
    scatter_table,
)
from nsysflow.analysis.schema import CAUSE

COPY: Final = f"^{RUNTIME}Memcpy"
GRAPH_LAUNCH: Final = f"^{RUNTIME}GraphLaunch"

QUEUE_DELAY_NS: Final = 10_000
HIP_QUEUE_DELAY_NS: Final = 30_000
"""Work that starts so soon after it was queued was only delayed; later, it depended on other work
(spec §3.4). An idle MI300X starts a kernel 14 to 24 us after its launch under torch.profiler
(medians of three public traces), an H100 after 1.7 us."""

SYNC_AFTER_NS: Final = 50_000
"""A sync that starts within 50 us of an asynchronous copy makes it a blocking one (spec §4.5); one
after a blocking copy is of that copy's line (§11.5). Tracks on the axis are further apart than this
and `--framework-gap-us`. No other rule looks ahead."""

LAZY_LOAD_NS: Final = 1_000_000
"""A kernel's first launch call over 1 ms spent that time loading its code (spec §3)."""


CLASSED_CALLS: Final = pl.Schema(
    {
        "call": pl.UInt32(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "correlation": pl.Int64(),
        "name": pl.Categorical(),
        "thread_no": pl.UInt32(),
        "class": CAUSE,
    }
)
"""A row per call, numbered `call`, sorted by thread and start, longest first, none of negative
length."""
ClassedCalls = Annotated[pl.DataFrame, CLASSED_CALLS]


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
    makes_it = name.str.contains(f"^(?:{cause.calls})$")
    return makes_it & ~name.str.contains(cause.calls_not) if cause.calls_not else makes_it


def with_class_by_name(calls: pl.DataFrame) -> ClassedCalls:
    """`calls` plus `class`; each distinct name is classified once."""
    names = calls.select(pl.col("name").unique())
    classes = names.select(class_by_name(_text())).to_series()
    code = names["name"].to_physical()
    table = scatter_table(greatest(code) + 1, code, classes)
    return calls.with_columns(table[calls["name"].to_physical()].alias("class"))


def refine_classes(calls: ClassedCalls, ops: pl.DataFrame, pageable: pl.Series) -> ClassedCalls:
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


def queue_limit_ns(calls: pl.DataFrame, rows: pl.Series) -> pl.Series:
    """`limit_ns`: how late work may start, launched by the calls in these rows of `calls`, to be
    only delayed; null without a call."""
    hip = matching(calls["name"], r"^hip").gather(rows)
    late = pl.when(hip).then(pl.lit(HIP_QUEUE_DELAY_NS)).when(~hip).then(pl.lit(QUEUE_DELAY_NS))
    return pl.select(late.cast(pl.Int64).alias("limit_ns")).to_series()


def _text() -> pl.Expr:
    """The call's name as text."""
    return pl.col("name").cast(pl.String)


def _rows(calls: ClassedCalls, rows: pl.Series) -> ClassedCalls:
    return calls[rows.unique().sort()]


def _first_slow_launches(calls: ClassedCalls, ops: pl.DataFrame) -> pl.Series:
    """Rows of `calls` over 1 ms that are the first launch of their kernel in their process.

    If two begin together, the longer counts, then the one with the smaller correlation id.
    """
    slow = calls.filter(pl.col("end_ns") - pl.col("start_ns") > LAZY_LOAD_NS)
    if slow.is_empty():
        return pl.Series("call", [], dtype=pl.UInt32)
    is_slow = scatter_table(len(calls), slow["call"], repeated(value=True, length=len(slow)))
    kernels = ops[["kind", "process", "name", "call", "launch_start_ns"]].filter(
        pl.col("kind") == "kernel", pl.col("call").is_not_null()
    )
    suspects = kernels.filter(is_slow[kernels["call"]].is_not_null())
    launches = kernels.filter(pl.col("name").is_in(suspects["name"].unique().implode()))
    launches = launches.filter(~matching(calls["name"], GRAPH_LAUNCH)[launches["call"]])
    called = calls[["end_ns", "correlation"]][launches["call"]]
    order = ["launch_start_ns", "end_ns", "correlation", "call"]
    first = (
        launches.hstack(called)
        .sort(order, descending=[False, True, False, False])
        .unique(["process", "name"], keep="first", maintain_order=True)
    )
    return first.join(slow, on="call", how="semi")["call"]


NONE: Final = "none"
"""The class of names that only look like communication."""

_UNNAMED: Final = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}"


@cache
def communication_rules() -> tuple[tuple[str, str], ...]:
    """(class, pattern) in order of precedence."""
    text = files("nsysflow.analysis.events").joinpath("communication.toml")
    rows = tomllib.loads(text.read_text(encoding="utf-8"))["kernel"]
    return tuple((row["class"], f"(?i){row['pattern']}") for row in rows)


def communication_classes(names: pl.DataFrame) -> pl.Series:
    """`comm`, `gemm+comm`, or `none` of kernels, by their `name` and `short_name`; null where no
    rule matches."""
    return _COMMUNICATION.of(names)["class"]


def _communication_classes(names: pl.DataFrame) -> pl.DataFrame:
    qualified = qualified_name(pl.col("name"), pl.col("short_name"))
    kinds = [
        pl.when(qualified.str.contains(pattern)).then(pl.lit(kind))
        for kind, pattern in communication_rules()
    ]
    return names.select(pl.coalesce(kinds).alias("class"))


_COMMUNICATION: Final = DescribedRows(_communication_classes, pl.Schema({"class": pl.String()}))


def qualified_name(name: pl.Expr, short_name: pl.Expr) -> pl.Expr:
    """Namespaces and name, without return type, template arguments and parameters.

    The short name alone where the full name is of a generic template that runs it.
    """
    head = name.str.replace_all(_UNNAMED, "unnamed").str.extract(r"^([^<(\[]*)")
    last = head.str.strip_chars().str.extract(r"(\S*)$")
    return pl.when(last.str.ends_with(short_name)).then(last).otherwise(short_name)


PART: Final = pl.Enum(["compute", "comm", "copy"])


def parts_of(ops: pl.DataFrame) -> pl.Series:
    """The `part` of each operation."""
    kernels = ops[["name", "short_name"]].filter(ops["kind"] == "kernel").unique("name")
    names = kernels.cast(pl.String)
    communicating = names.filter(communication_classes(names) == "comm")["name"]
    is_copy = pl.col("kind").is_in(["memcpy", "memset"])
    is_comm = pl.col("name").is_in(communicating.to_list()) & (pl.col("kind") == "kernel")
    number = {name: pl.lit(i, pl.UInt8) for i, name in enumerate(PART.categories)}
    part = (
        pl.when(is_copy)
        .then(number["copy"])
        .when(is_comm)
        .then(number["comm"])
        .otherwise(number["compute"])
    )
    return enum_from_index(ops.select(part.alias("part")).to_series(), PART)
