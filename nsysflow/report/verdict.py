"""The verdict in one line, what holds these GPUs back; or that the recording cannot be judged."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.kernel_classes import OTHER
from nsysflow.analysis.load.unpacking import ROCPROF
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.bound import (
    LEAST_PCT,
    PARTS,
    ViewBound,
    bound_of_parts,
    without_recording,
)
from nsysflow.analysis.tables.integrity import OF_GRAPHS
from nsysflow.base.units import duration, number, size, whole_percent
from nsysflow.report.fields import Row
from nsysflow.report.ledger import LONG, slowest_ledger
from nsysflow.report.results import Results, RunTables, gpu_name
from nsysflow.report.step_times import WithoutProfiler, shorter_steps, slowed_most
from nsysflow.report.validity import LET_IT_END, Invalid, failures

HARDLY_USED: Final = 0.01
"""A GPU that works for less than this share of the busiest one's time was not meant to work: it
holds a context, or the few operations of a library that looks at all GPUs."""

WORTH_PCT: Final = 1
"""A loss below this share is no remark worth."""

MOST_PCT: Final = 50
"""A GPU that computes less than this share of the time is not called compute-bound."""

WORDS: Final = {
    "compute": "compute-bound",
    "communication": "communication-bound",
    "copies": "copy-bound",
    **{name: cause.bound for name, cause in CAUSES.items()},
}
"""The verdict's word for each part of the time."""

LOSSES: Final = {
    "communication": "waiting for communication",
    "copies": "copying",
    **{name: cause.label for name, cause in CAUSES.items()},
}
"""What each part is called as a loss."""

DOING: Final = {
    "compute": "computing",
    "communication": "waiting for communication",
    "copies": "copying",
    **{name: cause.waits for name, cause in CAUSES.items()},
}
"""What the GPU does in each part, as it follows a share: `45 % waiting for launches`."""

_FINITE: Final = (
    ("computing", "computes", "compute"),
    ("waiting", "waits", "wait"),
    ("loading", "loads", "load"),
    ("copying", "copies", "copy"),
)
"""Their verbs: `the GPU waits for launches`, `the GPUs wait for launches`."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What holds one or more GPUs back.

    Attributes:
        gpus: which ones, e.g. `GPU 0`; empty where it is all of them.
        word: `host-bound`; empty where no single part of the time decides.
        who: `the GPU`, `2 GPUs`.
        what: what they do with most of the time, or that they have next to nothing to do.
        loss: the largest avoidable part of the time; empty where none is worth a remark.
        advice: what to do next; empty where findings say it.
        bound: the names of the largest parts, joined by `+`; None where nothing was judged.
        bound_pct: the share of the first.
    """

    gpus: str = ""
    word: str = ""
    who: str = "the GPU"
    what: str
    loss: str = ""
    advice: str = ""
    bound: str | None = None
    bound_pct: float | None = None

    @property
    def sentence(self) -> str:
        """Which GPUs, what and why in one line."""
        clause = self.clause
        return clause if self.gpus else clause[0].upper() + clause[1:]

    @property
    def clause(self) -> str:
        """The same within a sentence."""
        loss = f"; largest loss: {self.loss}" if self.loss else ""
        if self.gpus:
            return f"{self.gpus}: {', '.join(filter(None, [self.word, self.what]))}{loss}"
        return f"{self.word}: {self.who} {self.what}{loss}" if self.word else f"{self.what}{loss}"


def verdicts(results: RunTables, added_ns: int = 0) -> tuple[Verdict, ...]:
    """One verdict for all GPUs with the same bound, those with the largest loss first, and GPUs
    that are hardly used last; never empty.

    Args:
        results: the judged part of a run.
        added_ns: how much longer a step takes for being recorded; the verdict is without that.
    """
    accounting = results.table("accounting").filter(pl.col("window_ns") > 0)
    if accounting.is_empty():
        return (_no_work(results),)
    key = ["report", "device"]
    busy_ns = pl.col("window_ns") - pl.col("idle_ns")
    used = accounting.filter(busy_ns >= HARDLY_USED * busy_ns.max())
    unused = accounting.join(used, on=key, how="anti", maintain_order="left")
    lost_ns = (pl.col("window_ns") - pl.col("compute_ns")).alias("lost_ns")
    parts = results.together(lambda report: report.parts).join(used.select(*key, lost_ns), on=key)
    parts = parts.sort("lost_ns", *key, descending=[True, False, False]).drop("lost_ns")
    groups: dict[tuple[str, ...], list[Row]] = {}
    for recorded in parts.iter_rows(named=True):
        steps = results.steps_on(recorded["report"], recorded["device"])
        row = recorded | without_recording(_sums([recorded]), steps * added_ns)
        names = bound_of_parts(_sums([row])).names
        groups.setdefault(names, []).append(row)
    alone = len(groups) == 1 and unused.is_empty()
    found = [_verdict(results, rows, alone=alone) for rows in groups.values()]
    return (*found, *([] if unused.is_empty() else [_hardly_used(results, used, unused)]))


def _sums(rows: Sequence[Row]) -> dict[str, int]:
    """The parts of several GPUs together."""
    columns = [f"{part}_ns" for part in PARTS]
    return {column: sum(row[column] for row in rows) for column in columns}


def _verdict(results: RunTables, rows: Sequence[Row], *, alone: bool) -> Verdict:
    """The verdict on GPUs of one kind."""
    bound = bound_of_parts(_sums(rows))
    computes = bound.names[:1] == ("compute",)
    # the largest parts then say more than `compute-bound`
    mostly_idle = computes and bound.pct is not None and bound.pct < MOST_PCT
    one = len(bound.names) == 1 and not mostly_idle
    several = _several_parts(results, bound) or "no part of the time stands out"
    return Verdict(
        gpus="" if alone else _names(results, rows),
        word=WORDS[bound.names[0]] if one else "",
        who="the GPU" if len(rows) == 1 else f"{len(rows)} GPUs",
        what=_one_part(results, rows, bound) if one else several,
        loss=_loss(bound) if (one and computes) or not bound.names else "",
        bound="+".join(bound.names) or None,
        bound_pct=bound.pct,
    )


def _one_part(results: RunTables, rows: Sequence[Row], bound: ViewBound) -> str:
    """`waits for Python 53 % of a step and computes 38 %`."""
    (name,) = bound.names
    many = len(rows) > 1
    of = "of a step" if results.of_steps else "of the time"
    verb = _finite(_doing(results, name), many=many)
    if name == "compute":
        mostly = _waiting_for_pages(results) or _largest_class(results, rows)
        rest = "".join(f", {each}" for each in mostly)
    else:
        rest = f" and {_finite('computing', many=many)} {_share(bound, 'compute')}"
    return f"{verb} {_share(bound, name)} {of}{rest}"


def _largest(bound: ViewBound) -> Sequence[str]:
    """The largest parts, three at most, each worth a word."""
    by_size = sorted(bound.parts_ns, key=lambda name: -bound.parts_ns[name])
    whole_ns = sum(bound.parts_ns.values())
    return [name for name in by_size if 100 * bound.parts_ns[name] >= LEAST_PCT * whole_ns][:3]


def _several_parts(results: RunTables, bound: ViewBound) -> str:
    """`30 % loading kernels, 27 % waiting for launches, 12 % computing`."""
    largest = _largest(bound)
    names = dict.fromkeys((*largest, *(["compute"] if largest else [])))
    shares = ((_share(bound, name), _doing(results, name)) for name in names)
    return ", ".join(f"{'half' if pct == '50 %' else pct} {doing}" for pct, doing in shares)


def _share(bound: ViewBound, name: str) -> str:
    return whole_percent(bound.parts_ns[name], max(1, sum(bound.parts_ns.values())))


def _doing(results: RunTables, name: str) -> str:
    """What the GPU does in a part; the host is Python where the reports show its lines."""
    python = (
        trace.collector == "kineto"
        or not (trace.backtraces.is_empty() and trace.samples.is_empty())
        for trace in (each.trace for each in results.report_tables)
    )
    return "waiting for Python" if name == "host" and all(python) else DOING[name]


def _finite(doing: str, *, many: bool) -> str:
    """`waits for launches`, of many GPUs `wait for launches`."""
    for participle, of_one, of_many in _FINITE:
        doing = doing.replace(participle, of_many if many else of_one, 1)
    return doing


def _loss(bound: ViewBound) -> str:
    """`host and launch, 22 %`; empty where it is not worth a remark."""
    if not bound.loss or bound.loss_pct is None or bound.loss_pct < WORTH_PCT:
        return ""
    names = "host code and launches" if len(bound.loss) > 1 else LOSSES[bound.loss[0]]
    return f"{names}, {bound.loss_pct:.0f} %"


def _largest_class(results: RunTables, rows: Sequence[Row]) -> list[str]:
    """`mostly matmul`: the class of kernels with half of the kernel time, communication aside."""
    gpus = pl.DataFrame([{"report": row["report"], "device": row["device"]} for row in rows])
    kernels = results.table("kernels").filter(pl.col("class") != "comm")
    here = kernels.join(gpus.cast({"device": pl.Int32}), on=["report", "device"], how="semi")
    sums = here.group_by("class").agg(pl.col("total_ns").sum()).sort("total_ns", "class")
    if sums.is_empty() or 2 * sums["total_ns"][-1] < sums["total_ns"].sum():
        return []
    if sums["class"][-1] == OTHER:
        return []  # it would say nothing
    return [f"mostly {sums['class'][-1]}"]


def _waiting_for_pages(results: RunTables) -> list[str]:
    """That kernels run, but mostly wait for managed memory; empty where they do not."""
    pages = results.table("findings").filter(
        pl.col("rule") == "managed-memory",
        ~pl.col("culprit").str.starts_with("memcpy"),
        pl.col("saving_pct") > MOST_PCT,
    )
    return [] if pages.is_empty() else ["mostly with kernels that wait for managed memory"]


def _no_work(results: RunTables) -> Verdict:
    collectors = {each.trace.collector for each in results.report_tables}
    if results.whole.origin.on_cpu:
        advice = "profile on a machine with a GPU, without --on cpu"
    elif collectors == {"kineto"}:
        advice = (
            "check that ProfilerActivity.CUDA is among the profiler's activities, and that the GPU"
            " is used while it runs"
        )
    elif collectors == {"rocprof"}:
        advice = f"record kernels and copies: {ROCPROF}"
    elif collectors == {"snapshot"}:
        return _memory_alone(results)
    elif results.whole.origin.killed:
        advice = LET_IT_END
    else:
        advice = "check that --trace includes cuda, and that the GPU is used during the capture"
    return Verdict(what="no GPU work (no kernel, copy or memset in this report)", advice=advice)


def _memory_alone(results: RunTables) -> Verdict:
    """What a memory snapshot says."""
    memory = results.table("memory").filter(phase="").drop_nulls("peak_bytes").sort("peak_bytes")
    if memory.is_empty():
        return Verdict(what="no memory of PyTorch's allocator in this snapshot", advice=_DUMPED)
    most = memory.row(-1, named=True)
    name = gpu_name(most["report"], most["device"], several=len(results.reports) > 1)
    failed = results.table("out_of_memory").height
    times = "once" if failed == 1 else f"{number(failed)} times"
    ended = f"; the GPU ran out of memory {times}" if failed else ""
    return Verdict(
        what=f"up to {size(most['peak_bytes'])} of memory allocated on {name}{ended}",
        advice="a snapshot holds no times of kernels: nsysflow profile -- COMMAND records them",
    )


_DUMPED: Final = (
    "dump it after some steps: torch.cuda.memory._record_memory_history(), the steps,"
    " torch.cuda.memory._dump_snapshot(FILE)"
)


def _hardly_used(results: RunTables, used: pl.DataFrame, unused: pl.DataFrame) -> Verdict:
    busy_ns = int((unused["window_ns"] - unused["idle_ns"]).sum())
    ops = int(unused["ops"].sum())
    others = used["device"].unique().to_list()
    advice = "if it should work, check that the program uses it"
    if len(others) == 1:
        advice += f"; if not, look at the other GPU alone with --device {others[0]}"
    return Verdict(
        gpus=_names(results, unused.iter_rows(named=True)),
        what=(
            f"hardly used ({number(ops)} operation{'' if ops == 1 else 's'},"
            f" {duration(busy_ns)} of work)"
        ),
        advice=advice,
    )


def _names(results: RunTables, rows: Iterable[Row]) -> str:
    several = len(results.reports) > 1
    return ", ".join(gpu_name(row["report"], row["device"], several=several) for row in rows)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What is concluded from a run.

    Attributes:
        why: the check that failed, by name; None where the recording is valid.
        headlines: the failed checks, or the verdicts; never empty.
        remarks: what to keep in mind about them, a sentence each.
    """

    why: str | None
    headlines: tuple[Verdict | Invalid, ...]
    remarks: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether the recording can be judged."""
        return self.why is None

    @property
    def bound(self) -> str | None:
        """What takes most of the time, as phases.csv has it; None where nothing was judged."""
        first = self.headlines[0]
        return first.bound if isinstance(first, Verdict) else None

    @property
    def bound_pct(self) -> float | None:
        """Its share of the time."""
        first = self.headlines[0]
        return first.bound_pct if isinstance(first, Verdict) else None

    @property
    def text(self) -> str:
        """All of it in sentences; what to do next only where a check failed."""
        sentences = []
        for each in self.headlines:
            sentences.append(each.sentence)
            if isinstance(each, Invalid):
                sentences.append(each.advice[0].upper() + each.advice[1:])
        return ". ".join([*sentences, *self.remarks])


def judge(results: Results) -> Judgement:
    """The judgement on a run. A failed check stands in place of a verdict."""
    failed = failures(results)
    slowed = slowed_most(results.typical)
    added_ns = _taken_off_ns(results, slowed)
    return Judgement(
        why=failed[0].why if failed else None,
        headlines=failed or _verdicts(results, added_ns),
        remarks=tuple(_remarks(results.typical, slowed, added_ns)),
    )


def _taken_off_ns(results: Results, slowed: WithoutProfiler | None) -> int:
    """What a step of the headline is shorter than a recorded one: what recording adds, for one
    report whose steps were timed without it."""
    one = len(results.reports) == 1 and not results.many
    known = slowed is not None and slowed.is_unrecorded and not _do_other_work(results, slowed)
    return slowed.added_ns if one and slowed is not None and known else 0


def _do_other_work(results: RunTables, slowed: WithoutProfiler) -> bool:
    """Whether the recorded steps differ too much from later ones for the profiler alone."""
    record_later = results.whole.origin.record_later
    return bool(record_later) and slowed.is_after and slowed.added_ns > slowed.step_ns


def _remarks(results: Results, slowed: WithoutProfiler | None, added_ns: int) -> Iterator[str]:
    yield from _typical_steps(results, added_ns)
    yield from _growing_steps(results)
    yield from _steps_by_turns(results)
    if slowed is not None:
        yield _slowed(results, slowed, added_ns)
    yield from shorter_steps(results)
    yield from _wrong_times(results)
    yield from _framework_gap(results)
    yield from _without_steps(results)
    if results.steps_inferred:
        # `profile` marks steps where it can: if it recorded this, it could not
        by_profile = bool(results.whole.origin.versions)
        advice = (
            "put the loop into nsysflow.steps"
            if by_profile
            else "nsysflow profile marks steps and phases by itself"
        )
        yield f"Steps are inferred from repeating kernels, as no range marks them: {advice}"


def _verdicts(results: Results, added_ns: int) -> tuple[Verdict, ...]:
    """The verdicts on a run; of many ranks, on the typical one."""
    typical = verdicts(results.typical.run_steps, added_ns)
    if not results.many:
        return typical
    name = f"{results.typical.reports[0]}, the typical rank"
    return tuple(
        replace(verdict, gpus=", ".join(filter(None, [name, verdict.gpus]))) for verdict in typical
    )


LONG_PCT: Final = 5
"""From here on, long steps change what is seen, and the typical ones are judged apart."""


def _typical_steps(results: Results, added_ns: int) -> Iterator[str]:
    """What holds the typical steps back, where long ones take much of the time."""
    ledger = slowest_ledger(results)
    long_ns = ledger.time_ns(*LONG)
    if 100 * long_ns >= LONG_PCT * ledger.time_ns("typical", *LONG) > 0:
        first = verdicts(results.judged, added_ns)[0]
        alone = first.clause if first.gpus else first.clause.removeprefix(f"{first.word}: ")
        yield f"Typical steps alone: {alone}"


def _growing_steps(results: Results) -> Iterator[str]:
    """That steps are of different sizes, with those of the report in which they grow most."""
    grown = [report.growth_ns for report in results.report_tables if report.growth_ns]
    if grown:
        first_ns, last_ns = max(grown, key=lambda growth: growth[1])
        yield (
            f"Work grows from step to step, from {duration(first_ns)} to {duration(last_ns)}: judge"
            " steps of one size with --steps A:B"
        )


def _steps_by_turns(results: Results) -> Iterator[str]:
    """That a step is the mean of two kinds, with those of the report in which they differ most."""
    turns = [report.turns_ns for report in results.report_tables if report.turns_ns]
    if turns:
        shorter_ns, longer_ns = max(turns, key=lambda kinds: kinds[1] - kinds[0])
        yield (
            f"Two kinds of steps take turns, {duration(shorter_ns)} and {duration(longer_ns)}, and"
            " figures are of their mean; where gradients accumulate, put one range around both"
        )


def _slowed(results: Results, slowed: WithoutProfiler, added_ns: int) -> str:
    """That the profiler slows the steps by much, and what that makes of the headline."""
    if _do_other_work(results, slowed):
        return (
            f"Recorded steps are not typical: {duration(slowed.step_ns + slowed.added_ns)}, those"
            f" {slowed.when} {duration(slowed.step_ns)}. Record later ones:"
            f" {results.whole.origin.record_later}"
        )
    slower = f"{whole_percent(slowed.added_ns, slowed.step_ns)} slower than {slowed.others}"
    if not added_ns:
        return f"Recorded steps are {slower}: host and launch shares are inflated"
    parts = results.judged.together(lambda report: report.parts)
    bound = bound_of_parts(_sums([*parts.iter_rows(named=True)]))
    return (
        f"The tables show the recorded steps. They are {slower}, and the GPU computes"
        f" {_share(bound, 'compute')} of the time"
    )


def _wrong_times(results: RunTables) -> Iterator[str]:
    """That operations of graphs have wrong times. One that lasts too long hides what follows it."""
    found = results.table("integrity").filter(pl.col("check").is_in(OF_GRAPHS))
    count = found["count"].max()
    if isinstance(count, int):
        one = count == 1
        yield (
            f"{number(count)} operation{'' if one else 's'} of a CUDA graph"
            f" {'has a wrong time' if one else 'have wrong times'}, which hides idle time around"
            f" {'it' if one else 'them'}: --table integrity"
        )


def _framework_gap(results: Results) -> Iterator[str]:
    """That the line between host code and launching was moved by hand."""
    gap_ns = results.analyses[0].options.framework_gap_ns
    if gap_ns != Options().framework_gap_ns:
        yield (
            f"--framework-gap-us {gap_ns / 1000:g} was set: pauses up to {duration(gap_ns)} count"
            " as launching, longer ones as host code"
        )


def _without_steps(results: RunTables) -> Iterator[str]:
    """That no step is known, and how to say what one is; or that too few are."""
    if results.table("accounting").is_empty() or results.table("steps")["steady"].any():
        return
    if results.step_name is not None:
        yield (
            "Too few steps were recorded to judge one, so the whole window is judged, start-up"
            " included: let the program run longer"
        )
    else:
        yield (
            "No step is known, so the whole window is judged: put the loop into nsysflow.steps, or"
            " name the range that is one step with --step NAME"
        )
