"""The source line of each CUDA call, and the framework's line it went through, if Python stacks
were sampled (spec §11)."""

from typing import Annotated, Final

import polars as pl

from nsysflow.analysis.causes import STALLS
from nsysflow.analysis.events.classes import SYNC_AFTER_NS, ClassedCalls
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.intervals import Axis, inside, on_axis
from nsysflow.analysis.frames.source_files import is_framework, is_own, shown_lines
from nsysflow.analysis.trace import Trace
from nsysflow.base.names import NAMELESS

STACK_SOURCES: Final = pl.Schema(
    {"stack": pl.UInt32(), "source": pl.Categorical(), "via": pl.Categorical()}
)
"""The lines of each stack that has one of the program or of a framework; sorted by stack."""
StackSources = Annotated[pl.DataFrame, STACK_SOURCES]


def with_sources(
    calls: ClassedCalls, threads: pl.DataFrame, axis: Axis, trace: Trace, sources: StackSources
) -> pl.DataFrame:
    """`calls` plus `source` and `via`, the lines of its backtrace (`stack_sources`).

    Null if there is no stack, or no such frame in it. The profiler records one backtrace for
    a runtime call and the driver call inside it, and may leave out short calls. A call without one
    takes that of the call around it, or that of its correlation id, or that of the copy before it
    or the wait behind it. A stall without any takes what its thread was seen to run.

    Args:
        calls: sorted by thread and start, longest first, with `thread_no`, `correlation` and
            `class`.
        threads: `thread` and its `thread_no`.
        axis: the axis of the threads.
        trace: for its stacks.
        sources: the lines of its stacks.
    """
    recorded = (trace.backtraces, trace.samples, trace.running)
    if all(rows.is_empty() for rows in recorded):
        nothing = pl.lit(None, pl.Categorical)
        return calls.with_columns(nothing.alias("source"), nothing.alias("via"))
    stack = repeated(None, len(calls), pl.UInt32)
    if not trace.backtraces.is_empty():
        sampled = _with_stacks(calls, trace.backtraces.join(threads, on="thread"), axis)
        stack = _of_correlation(_of_call_around(sampled))
        stack = _of_copy_and_wait(sampled.with_columns(stack, calls["class"]))
    seen = inside(_seen(trace), axis).join(threads, on="thread")
    stack = _of_what_ran(calls, stack, seen, axis)
    row = stack.replace_strict(
        sources["stack"], sources.with_row_index()["index"], default=None, return_dtype=pl.UInt32
    )
    return calls.hstack([sources[column][row] for column in ("source", "via")])


def without_line(line: pl.Expr) -> pl.Expr:
    """`train.py in step` of `train.py:42 in step`: the same at each line of a function."""
    return line.str.replace(r":\d+ in ", " in ")


def stack_sources(frames: pl.DataFrame, own: tuple[str, ...] = ()) -> StackSources:
    """The lines of stacks.

    `source` is the innermost frame of the program itself, e.g. `train.py:42 in step`. `via` is the
    innermost frame of a framework, where that lies further in, e.g.
    `transformers/trainer.py:2541 in _inner_training_loop`.

    Args:
        frames: `schema.FRAMES`.
        own: packages, files and folders that are the program's own too (`Options.own`).
    """
    if frames.is_empty():
        return STACK_SOURCES.to_frame()
    met = code_frames(frames, own).unique(["stack", "kind"], keep="first", maintain_order=True)
    columns = ["stack", "depth", pl.col("line").cast(pl.Categorical)]
    own_lines, frameworks = (
        met.filter(pl.col("kind") == kind).select(columns) for kind in (OWN, FRAMEWORK)
    )
    both = own_lines.join(frameworks, on="stack", how="full", coalesce=True, suffix="_via")
    further_in = pl.col("depth").is_null() | (pl.col("depth_via") < pl.col("depth"))
    via = pl.when(further_in).then("line_via").alias("via")
    return both.select("stack", pl.col("line").alias("source"), via).sort("stack")


def code_frames(frames: pl.DataFrame, own: tuple[str, ...] = ()) -> pl.DataFrame:
    """The frames of the program itself and of frameworks: `stack`, `depth` (0 is the innermost),
    `kind` (`OWN` or `FRAMEWORK`) and `line`, e.g. `train.py:42 in step`; sorted by the first two.

    Args:
        frames: `schema.FRAMES`.
        own: as for `stack_sources`.
    """
    kinds = _kinds(frames["file"].drop_nulls().unique(), own)
    line = pl.format("{}:{} in {}", "shown", "line", pl.col("function").fill_null(NAMELESS))
    return (
        frames.sort("stack", "depth")
        .join(kinds, on="file", how="left", maintain_order="left")
        .with_columns(pl.when(~_generated()).then("kind").alias("kind"))
        .drop_nulls("kind")
        .select("stack", "depth", "kind", line.alias("line"))
    )


def recorded_files(frames: pl.DataFrame, own: tuple[str, ...] = ()) -> dict[str, str]:
    """The file that each name in a source line means, as the report has it: its whole path, unless
    the report was packed.

    Args:
        frames: `schema.FRAMES`.
        own: as for `stack_sources`.
    """
    kinds = _kinds(frames["file"].drop_nulls().unique(), own)
    return dict(kinds.select("shown", "file").rows())


OWN: Final = "own"
FRAMEWORK: Final = "framework"
"""The owner of a frame: the program, or an installed package that is no engine."""


def _kinds(files: pl.Series, own: tuple[str, ...]) -> pl.DataFrame:
    """`file`, `kind` and `shown`, its name in a line, of files of the program and of frameworks."""
    kinds = {
        file: OWN if is_own(file, own) else FRAMEWORK
        for file in files
        if is_own(file, own) or is_framework(file)
    }
    shown = shown_lines(kinds)
    rows = [(file, kind, shown[file]) for file, kind in kinds.items()]
    return pl.DataFrame(
        rows, schema=dict.fromkeys(("file", "kind", "shown"), pl.String), orient="row"
    )


def _generated() -> pl.Expr:
    """Whether a frame of sorted stacks is `<string>` code that a program generated.

    Code that a person typed has no caller, or one that was typed too. Code that was generated, such
    as the `__init__` of a dataclass, is called by a file.
    """
    string = (pl.col("file") == "<string>").fill_null(value=False)
    called = (pl.col("stack").shift(-1) == pl.col("stack")).fill_null(value=False)
    return string & called & ~string.shift(-1)


def _with_stacks(calls: ClassedCalls, backtraces: pl.DataFrame, axis: Axis) -> pl.DataFrame:
    """Per call `thread_no`, `correlation`, `start` and `end` on the axis, and `stack` of a
    backtrace taken when it started."""
    key, thread = ["thread_no", "start_ns"], pl.col("thread_no")
    at_start = backtraces[[*key, "stack"]].unique(key, keep="first", maintain_order=True)
    return calls.join(at_start, on=key, how="left", maintain_order="left").select(
        "thread_no",
        "correlation",
        axis.at(thread, pl.col("start_ns")).alias("start"),
        axis.at(thread, pl.col("end_ns")).alias("end"),
        "stack",
    )


def _of_call_around(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls`; those without a stack take it from the first call around them that has one."""
    known = calls.drop_nulls("stack")
    # the first call that reaches an end is where the running maximum reaches it
    first = known["end"].cum_max().search_sorted(calls["end"], side="left")
    first = first.set(first >= len(known), None)
    holds = known["start"][first] <= calls["start"]
    stack = pl.when(holds).then(known["stack"][first])
    return calls.with_columns(pl.coalesce("stack", stack))


def _of_correlation(calls: pl.DataFrame) -> pl.Series:
    """The stack of each call; those without one take that of their thread and correlation id."""
    key = ["thread_no", "correlation"]
    known = calls.drop_nulls(["stack", "correlation"]).unique(
        key, keep="first", maintain_order=True
    )
    stack = pl.col("stack").alias("same")
    both = calls.join(known.select(*key, stack), on=key, how="left", maintain_order="left")
    return both.select(pl.coalesce("stack", "same").alias("stack")).to_series()


def _of_copy_and_wait(calls: pl.DataFrame) -> pl.Series:
    """The stack of each call. A copy that blocks and the wait right behind it are of one line, so
    of the two, one without a stack takes that of the other."""
    calls = calls.with_row_index("row")
    others = calls.filter(pl.col("class") != "api")
    copies = others.filter(pl.col("class") == "blocking_copy", pl.col("start") < pl.col("end"))
    behind = others["start"].search_sorted(copies["end"], side="left")
    waits = others[behind.set(behind >= len(others), None)]
    soon = waits["start"] - copies["end"] <= SYNC_AFTER_NS
    paired = (soon & (waits["class"] == "sync")).fill_null(value=False)
    copies, waits = copies.filter(paired), waits.filter(paired)
    either = (copies, waits), (waits, copies)
    lent = pl.concat([to[["row"]].with_columns(by["stack"]) for to, by in either])
    lent = lent.drop_nulls().unique("row", keep="first", maintain_order=True)
    both = calls.join(lent, on="row", how="left", maintain_order="left", suffix="_of_other")
    return both.select(pl.coalesce("stack", "stack_of_other")).to_series()


def _seen(trace: Trace) -> pl.DataFrame:
    """When which stack was seen: `thread`, `start_ns`, `end_ns`, `stack`; disjoint per thread."""
    if not trace.running.is_empty():
        return trace.running
    at = pl.col("time_ns")
    instants = trace.samples.filter(at < at.upper_bound())
    first = instants.unique(["thread", "time_ns"], keep="first", maintain_order=True)
    return first.select("thread", at.alias("start_ns"), (at + 1).alias("end_ns"), "stack")


def _of_what_ran(
    calls: ClassedCalls, stack: pl.Series, seen: pl.DataFrame, axis: Axis
) -> pl.Series:
    """`stack`, of each call; a stall without one takes the first that was seen inside it."""
    asked = stack.is_null() & calls["class"].is_in(STALLS)
    if seen.is_empty() or not asked.any():
        return stack
    seen = on_axis(seen, axis, "thread_no").with_columns(seen["stack"]).sort("start")
    stalls = on_axis(calls.filter(asked), axis, "thread_no")
    first = seen["end"].search_sorted(stalls["start"], side="right")
    first = first.set(first >= len(seen), None)
    touches = (seen["start"][first] < stalls["end"]) & (stalls["start"] < stalls["end"])
    ran = seen["stack"][first].set(~touches.fill_null(value=False), None)
    return stack.scatter(asked.arg_true(), ran)
