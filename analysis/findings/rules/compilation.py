"""GPU code that is built or loaded while steps should be steady.

* `code-loading`: every step waits for it. A kernel is loaded when it is first launched. Where
  shapes change from step to step, libraries and torch.compile build new kernels again and again:
  cuDNN's attention took 41 ms for each token of a growing KV cache (h200-decode-samples).
* `recompile`: single steps after start-up build code anew. torch.compile, XLA and libraries build
  code for the shapes that they see. A new one costs seconds: 9.7 s in a step among steps of 6 ms.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Finding, place
from nsysflow.analysis.findings.host_functions import running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.schema import grid_as_text
from nsysflow.analysis.steps.kinds import steps_of_run
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number

CHANGE_OF_LOADING: Final = (
    "keep shapes the same from step to step: pad to a few lengths, a static KV cache",
    "run every shape once before the loop; torch.compile(dynamic=True) where they must vary",
    "where cuDNN builds attention for each length: torch.backends.cuda.enable_cudnn_sdp(False)",
)


FEWEST_WITHOUT: Final = 20
"""So many steps without new code, and half of all, say that the shapes are known by then."""

OVER: Final = ", in the first half of the recording alone"


def _is_over(last: int, steps: int) -> bool:
    """Whether new code only comes in the beginning: the last such step, by its place among so many
    steps, has enough behind it."""
    return steps - 1 - last >= max(FEWEST_WITHOUT, steps / 2)


def code_loading(subject: JudgedReport) -> Iterator[Finding]:
    """Steady steps in which the GPU waits while code is built and loaded, and goes on to."""
    pauses = subject.pauses.filter("loads_code")
    if pauses.is_empty() or not subject.of_steps or subject.is_unlike_later:
        return
    size_ns = subject.worst_ns(pauses, "ns")
    steps = subject.steps_with(pauses["start_ns"])
    begun = subject.judged_steps["start_ns"].unique().sort()
    last = begun.search_sorted(pauses["start_ns"].sort().tail(1), side="right")[0] - 1
    over = _is_over(last, len(begun))
    most = pauses.group_by("phase").agg(pl.col("ns").sum()).sort("ns", "phase")["phase"][-1]
    calls = subject.tables.gap_summary.filter(pl.col("cause") == "module_load")
    calls = (
        calls.group_by("culprit").agg(pl.col("gaps", "total_ns").sum()).sort("total_ns", "culprit")
    )
    culprit, _, loading_ns = calls.row(-1)
    yield Finding(
        rule="code-loading",
        title=f"GPU code is built and loaded in the loop: {culprit}{place(most)}"
        + (OVER if over else ""),
        change=CHANGE_OF_LOADING,
        evidence=(
            f"{steps} of {subject.steps} steps load code; the GPU waits {duration(size_ns)} a step",
            f"loading itself takes {duration(subject.per_step(loading_ns))} a step in {culprit};"
            " the rest is the host code around it, which builds what is loaded",
            *running(subject, most).evidence,
        ),
        table="gap_summary",
        size_ns=size_ns,
        steps=steps,
        at_most_ns=size_ns,
        phase="" if most == OUTSIDE else most,
        culprit=culprit,
    )


CHANGE_OF_RECOMPILING: Final = (
    "keep shapes, types and Python values the same from step to step: pad, drop_last=True",
    "with torch.compile: TORCH_LOGS=recompiles says why; dynamic=True where shapes must vary",
    "run every shape once before the loop",
)

LEAST_PCT: Final = 50
"""A step that compiles takes at least so much longer than those around it."""

_NAMED: Final = 3


@dataclass(frozen=True, kw_only=True)
class Recompiling:
    """The steps of a process and device after start-up, and those of them that compile.

    Attributes:
        steps: all of them, with `begun_ns`, when the host begins them.
        compiling: those that take much longer since code is compiled or loaded, with `built_ns`,
            when that begins, and `loads` and `ranges`, how often.
    """

    steps: pl.DataFrame
    compiling: pl.DataFrame


def recompile(subject: JudgedReport) -> Iterator[Finding]:
    """The steps after start-up that take much longer since they compile or load code, together."""
    for one in recompiling(subject):
        yield _finding(subject, one)


def recompiling(subject: JudgedReport) -> list[Recompiling]:
    """Of each process and device that has steps that compile; none where steps are selected."""
    return kept_with(subject, "steps that compile", lambda: [*_recompiling(subject)])


def _recompiling(subject: JudgedReport) -> Iterator[Recompiling]:
    if not subject.of_steps or subject.timeline.options.steps:
        return
    steps = steps_of_run(subject.timeline.steps)
    begun = subject.timeline.with_inferred.ranges["start_ns"][steps["range"]]
    steps = steps.with_columns(begun.alias("begun_ns"))
    for (process, _), mine in steps.group_by("process", "device_no", maintain_order=True):
        compiling = _compiling(subject, mine, process)
        if not compiling.is_empty():
            yield Recompiling(steps=mine, compiling=compiling)


def _compiling(subject: JudgedReport, steps: pl.DataFrame, process: object) -> pl.DataFrame:
    usual_ns = pl.col("end_ns") - pl.col("start_ns") - pl.col("excess_ns")
    excess = 100 * pl.col("excess_ns") >= LEAST_PCT * usual_ns
    longer = steps.filter(excess.fill_null(value=False))
    events = subject.timeline.events
    threads = events.threads.filter(pl.col("process") == pl.lit(process))["thread_no"]
    calls = events.calls.filter(pl.col("thread_no").is_in(threads.implode()))
    loads = calls.filter(matching(calls["name"], CAUSES["module_load"].calls or ""))["start_ns"]
    ranges = subject.timeline.attribution.ranges.filter("compiling")
    compiled = ranges.filter(pl.col("process") == pl.lit(process))["start_ns"]
    builds = pl.concat([loads, compiled]).sort()
    if builds.is_empty():
        return longer.clear()
    first = builds.search_sorted(longer["begun_ns"])
    return longer.with_columns(
        builds.gather(first, null_on_oob=True).alias("built_ns"),
        _starting(loads.sort(), longer).alias("loads"),
        _starting(compiled.sort(), longer).alias("ranges"),
    ).filter((pl.col("loads") > 0) | (pl.col("ranges") > 0))


def _starting(times_ns: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """How many of these times lie in each step."""
    ends = (times_ns.search_sorted(steps[side]).cast(pl.Int64) for side in ("begun_ns", "end_ns"))
    first, past = ends
    return past - first


def _finding(subject: JudgedReport, found: Recompiling) -> Finding:
    steps, compiling = found.steps, found.compiling
    longest = compiling.sort("excess_ns", "step").row(-1, named=True)
    length_ns = longest["end_ns"] - longest["start_ns"]
    # what is built before the first kernel of a step makes the step before it longer
    begun = steps["begun_ns"].sort()
    hosts = begun.search_sorted(compiling["built_ns"], side="right") - 1
    numbers = steps.sort("begun_ns")["step"].gather(hosts).unique().sort().to_list()
    which = ", ".join(map(str, numbers[:_NAMED])) + (", …" if len(numbers) > _NAMED else "")
    what = "step" if len(numbers) == 1 else f"{number(len(numbers))} steps:"
    compiles = int(compiling["ranges"].sum()) > 0
    loads = _counted(longest["loads"], "call loads", "calls load")
    ranges = _counted(longest["ranges"], "range of a compiler begins", "ranges of a compiler begin")
    verb, code = ("compile", "GPU code again") if compiles else ("load", "new GPU code")
    spread_ns = round(int(compiling["excess_ns"].sum()) / len(steps))
    over = _is_over(len(steps) - 1 - int((steps["step"] > numbers[-1]).sum()), len(steps))
    from_ns = begun.filter(begun <= longest["built_ns"])[-1]
    following = begun.filter(begun > longest["built_ns"])
    to_ns = following[0] if len(following) else longest["end_ns"]
    return Finding(
        rule="recompile",
        title=f"{what} {which} {verb}{'s' if len(numbers) == 1 else ''} {code}:"
        f" {duration(length_ns)} among steps of {duration(length_ns - longest['excess_ns'])}"
        + (OVER if over else ""),
        change=CHANGE_OF_RECOMPILING,
        evidence=(
            f"{loads} GPU code in the longest" + (f", and {ranges}" if compiles else ""),
            *_reasons(subject, int(from_ns), int(to_ns)),
        ),
        table="steps",
        size_ns=spread_ns,
        steps=len(numbers),
        at_most_ns=spread_ns,
        beside=True,
        device=longest["device"],
    )


def _counted(count: int, one: str, many: str) -> str:
    """`1 call loads`, `3 calls load`."""
    return f"1 {one}" if count == 1 else f"{number(count)} {many}"


def _reasons(subject: JudgedReport, from_ns: int, to_ns: int) -> Iterator[str]:
    """Which kernels launched meanwhile never ran before, and which had another grid: a shape is
    new."""
    kernels = subject.timeline.events.ops.filter(pl.col("kind") == "kernel")
    text = grid_as_text().gather(kernels["detail"]).alias("grid")
    grid = subject.grids.select(text).to_series()
    kernels = kernels.select(pl.col("short_name").cast(pl.String), "launch_start_ns", grid)
    before = kernels.filter(pl.col("launch_start_ns") < from_ns)
    here = kernels.filter(pl.col("launch_start_ns").is_between(from_ns, to_ns, closed="left"))
    new = here.join(before, on="short_name", how="anti")["short_name"].unique().sort()
    if len(new):
        run = "1 kernel runs" if len(new) == 1 else f"{number(len(new))} kernels run"
        yield f"{run} for the first time: {', '.join(new.head(_NAMED))}"
    known = here.join(before, on="short_name", how="semi").drop_nulls("grid")
    for row in known.join(before, on=["short_name", "grid"], how="anti").head(1).iter_rows():
        was = before.filter(pl.col("short_name") == row[0])["grid"][-1]
        yield f"a shape is new: the grid of {row[0]} is {row[2]}, {was} before"
