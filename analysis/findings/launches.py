"""What the host spends on launches and the code before each, and a change without some of it."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.replay.apply import ITSELF
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import OUTSIDE


def launches_with_code(subject: JudgedReport) -> pl.DataFrame:
    """What the judged part launched, by thread and start: `op`, `call`, `node`, `phase`,
    `thread_no`, `start_ns` and `cost_ns` of the call; `free_ns`, when the thread's last call before
    that launched or waited was done (null for the first); and `code_ns` since then."""
    view = subject.view
    acting = view.events.calls.filter(pl.col("class") != "api").sort("thread_no", "start_ns")
    free_ns = pl.col("end_ns").cum_max().shift(1).over("thread_no")
    calls = acting.select(
        *("call", "thread_no", "start_ns"),
        (pl.col("end_ns") - pl.col("start_ns")).alias("cost_ns"),
        free_ns.alias("free_ns"),
        (pl.col("start_ns") - free_ns).clip(0).alias("code_ns"),
    )
    launches = view.launches[["op", "call", "node"]].join(calls, on="call")
    phase = view.attribution.name_of(launches["node"]).cast(pl.String).alias("phase")
    return launches.with_columns(phase.fill_null("")).sort("thread_no", "start_ns")


def host_of_launches(
    subject: JudgedReport,
    ops: pl.Series,
    *,
    inside_calls: bool = False,
    shares: pl.Series | None = None,
) -> pl.DataFrame:
    """Per `phase` the time of the host: `own_ns` of the launches of `ops` and of the code before
    each, `whole_ns` of all code between launches. The first launch of a range or step is left
    out: the code before it may be of the loop. A graph's launch is not one kernel's.

    Args:
        subject: the judged part.
        ops: rows of the operations of the trace.
        inside_calls: whether the program calls what launches them in any case: the code before the
            first of neighbours stays.
        shares: of each of the operations how much of its launch counts; all of it when None.
    """
    before = pl.col("own").shift(1).over("thread_no").fill_null(value=False)
    code = pl.when(before if inside_calls else pl.lit(value=True)).then("code_ns").otherwise(0)
    return _host(subject, ops, code + pl.col("cost_ns"), shares)


def code_before(subject: JudgedReport, ops: pl.Series) -> pl.DataFrame:
    """The same, with `own_ns` only of the code before each launch."""
    return _host(subject, ops, pl.col("code_ns"))


def _host(
    subject: JudgedReport, ops: pl.Series, own_ns: pl.Expr, shares: pl.Series | None = None
) -> pl.DataFrame:
    own = pl.col("op").is_in(ops.implode()).alias("own")
    launches = launches_with_code(subject).with_columns(own)
    if shares is not None:
        own_ns *= pl.col("op").replace_strict(ops, shares, default=0.0, return_dtype=pl.Float64)
    launches = launches.with_columns(own_ns.cast(pl.Int64).alias("own_ns"))
    same_range = pl.col("node").eq_missing(pl.col("node").shift(1).over("thread_no"))
    begun_ns = subject.timeline.with_inferred.ranges["start_ns"][subject.judged_steps["range"]]
    begun_ns = begun_ns.unique().sort()
    step, step_before = (begun_ns.search_sorted(launches[at]) for at in ("start_ns", "free_ns"))
    graph = matching(subject.view.events.calls["name"], "Graph")[launches["call"]]
    launches = launches.filter(same_range, pl.lit(step == step_before), ~graph)
    return (
        launches.group_by(pl.col("phase").replace("", OUTSIDE))
        .agg(
            pl.col("own_ns").filter("own").sum(),
            pl.col("code_ns").sum().alias("whole_ns"),
        )
        .sort("phase")
    )


def without_launches(subject: JudgedReport, host: pl.DataFrame) -> Changes:
    """The code of each phase less what launches take of the host; where they take more than all
    code, the phase as one graph.

    Args:
        subject: the judged part.
        host: of `host_of_launches`.
    """
    taken = host.filter(pl.col("own_ns") > 0)
    left = taken.select("phase", 1 - pl.col("own_ns") / "whole_ns").rows()
    return Changes(
        graphs=tuple(itself(subject, phase) for phase, factor in left if factor <= 0),
        faster_host=tuple((itself(subject, phase), factor) for phase, factor in left if factor > 0),
    )


def with_less_code(subject: JudgedReport, host: pl.DataFrame) -> Changes:
    """The code of each phase less what launches take of the host, at most all of it. On the GPU
    nothing changes, as it would with a graph.

    Args:
        subject: the judged part.
        host: of `host_of_launches`.
    """
    left = (1 - pl.col("own_ns") / pl.col("whole_ns")).clip(lower_bound=0)
    taken = host.filter(pl.col("own_ns") > 0, pl.col("whole_ns") > 0).select("phase", left)
    return Changes(
        faster_host=tuple((itself(subject, phase), factor) for phase, factor in taken.rows())
    )


def counting_launches(
    subject: JudgedReport,
    finding: Finding,
    ops: pl.Series,
    left_out: str = "",
    *,
    inside_calls: bool = False,
    shares: pl.Series | None = None,
) -> Finding:
    """A finding about kernels that go away, with the host's time to launch them: at most both.

    Args:
        subject: the judged part.
        finding: of the kernels alone.
        ops: rows of these kernels among the operations of the trace.
        left_out: what of the host's time is not counted; to follow a sentence.
        inside_calls: as `host_of_launches` takes it.
        shares: likewise.
    """
    host = host_of_launches(subject, ops, inside_calls=inside_calls, shares=shares)
    own_ns = subject.per_step(int(host["own_ns"].sum()))
    size_ns = finding.size_ns + own_ns
    code = "between them" if inside_calls else "before each"
    launched = f"their launches and the code {code} take the host {subject.spent(own_ns)}"
    changes = [with_less_code(subject, host), finding.changes or Changes()]
    return replace(
        finding,
        evidence=(*finding.evidence, f"{launched}{left_out}"),
        changes=Changes.together(changes),
        size_ns=size_ns,
        at_most_ns=size_ns,
    )


def itself(subject: JudgedReport, phase: str) -> str:
    """The phase without those inside it, as a replay wants it."""
    paths = subject.tables.phases["path"]
    nested = phase != OUTSIDE and any(path.startswith(f"{phase}/") for path in paths)
    return phase + ITSELF if nested else phase
