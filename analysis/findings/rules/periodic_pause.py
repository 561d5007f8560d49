"""`periodic-pause` and `longer-steps`: steps that take much longer than those around them.

A checkpoint, an evaluation, a log that is written, a queue that is empty, garbage collection: what
they cost is spread over all steps, and no mean of the typical ones shows it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.events.retries import RETRIES
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import (
    COLLECTING,
    FEW,
    STARTING_WORKERS,
    Spot,
    change_of_wait,
    code_of,
    known_code,
    lines_of,
    spot_of,
    stacks_with,
)
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.loaders import LoaderAdvice, loader_advice
from nsysflow.analysis.findings.rules.allocations import (
    CHANGE_OF_RETRIES,
    retries_in,
    retries_in_words,
)
from nsysflow.analysis.findings.rules.compilation import CHANGE_OF_LOADING, recompiling
from nsysflow.analysis.phases.names import SAVES_STATE
from nsysflow.analysis.schema import os_pid
from nsysflow.analysis.selection.bound import PARTS, device_parts
from nsysflow.analysis.selection.view import JudgedView, View
from nsysflow.analysis.steps.kinds import growing
from nsysflow.analysis.tables.run import PARTS_OF_STEPS, listed, steps_of_rows
from nsysflow.base.units import duration, number

GARBAGE: Final = "if Python collects garbage: gc.freeze() after start-up, and gc.collect() rarely"
CHANGE_OF_GARBAGE: Final = (
    "gc.freeze() after start-up, gc.disable(), and gc.collect() rarely, between epochs",
    "make fewer objects that refer to each other in a circle: those wait for the collector",
)
CHANGE_OF_WORKERS: Final = (
    "DataLoader(…, persistent_workers=True): its workers then live through all epochs",
    "make one DataLoader before the loop, not a new one for each epoch; to take a batch now and"
    " then, keep one iterator: batches = iter(loader), and next(batches)",
    "longer epochs, if the data is few: RandomSampler(data, replacement=True, num_samples=…)",
)
KNOWN_CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    COLLECTING: CHANGE_OF_GARBAGE,
    STARTING_WORKERS: CHANGE_OF_WORKERS,
}
"""What helps against `KNOWN_CODE`."""

CHANGE_OF_CODE: Final = (
    "do it less often, or on another thread or process while the GPU goes on",
    "do it on the GPU, or launch the next step's work before it",
)
SAVED: Final = (
    "write checkpoints from another thread (torch.distributed.checkpoint.async_save), or rarely"
)
CHANGE_OF_SAVING: Final = (
    SAVED,
    "copy to pinned memory first, in one go, and let another thread write that to the disk",
)
UNKNOWN: Final = (
    SAVED,
    "copy what is logged to pinned memory with non_blocking=True, and write it some steps later",
)
SAMPLE: Final = "see which Python it is: record again with --sample-python 1000"

CHANGES: Final[Mapping[str, tuple[str, ...]]] = {
    "to the host": (
        "compute it on the GPU, and copy only the result: once, not tensor by tensor",
        "copy to pinned memory with non_blocking=True, and read it some steps later",
        "do it less often",
    ),
    "to the GPU": (
        "copy ahead, from pinned memory: tensor.pin_memory().to(device, non_blocking=True)",
        "keep it on the GPU, if it fits",
    ),
    "sync": (
        "remove the wait, or wait some steps later: for an event, not for the whole GPU",
        "do it less often",
    ),
    "alloc": ("allocate once before the loop, and use that memory again", "no empty_cache()"),
    "module_load": CHANGE_OF_LOADING,
    "communication": ("do it less often, or asynchronously beside the steps",),
    "compute": (
        "do it less often, or with fewer samples: evaluation and logging need not be exact",
        "make it faster: torch.inference_mode(), 16 bits, larger batches",
    ),
}
"""What helps against the part that is longer."""

TOGETHER: Final[Mapping[str, str]] = {
    "blocking_copy": "copies",
    "launch": "host",
    "api": "host",
}
"""Parts that one change is for."""

LABELS: Final[Mapping[str, str]] = {
    "copies": "copies",
    "compute": "GPU work",
    "communication": "communication",
}

WAYS: Final[Mapping[str, str]] = {"DtoH": "to the host", "HtoD": "to the GPU"}

STALLED: Final = ("copies", "sync", "alloc")
"""Parts that have a call, and its line."""

RETRIED: Final = ("alloc", "sync")
"""Parts that are longer where an allocator finds no memory and tries again."""

WAITS_FOR_BATCH: Final = r"torch/utils/data/dataloader\.py _get_data$"
"""Where the loop waits for workers that have started, …"""

GETS_BATCH: Final = "_get_data"
"""… by its name alone."""

BESIDE: Final = 3
"""A second part is named beside the largest one if it is at least a third of that."""

LEAST_PCT: Final = 10
"""A part with a smaller share of the excess is not named."""

BEHIND_PCT: Final = 80
"""If so many of a row's steps come right after a pause, they are part of it: caches are cold."""

LONGER_PCT: Final = 5
"""Steps that take longer without a rhythm are chance, unless together they take so much of the time
after start-up. A single one says nothing about a long run."""


@dataclass(frozen=True, kw_only=True)
class Excess:
    """By how much the parts of a row's steps exceed those of typical steps.

    Attributes:
        parts: in ns a step, largest first; of `PARTS`, some taken together.
        spot: where the program was while the GPU waited for the host; None where no line has half
            of that.
        lines: the program's lines at which the GPU waited for the host, and the share of that wait
            in percent, largest first; only those that are worth a name.
        sampled: whether anything says what the host ran.
        known: which of `KNOWN_CODE` ran there; empty if none did.
        copies: `to the host` or `to the GPU`, where most copies went; empty without any.
        stall: the line of the call that held up most; both empty where none is known.
        batch_ns: how long each step waits for the first batch of workers that it starts.
        loader: what to change about the loader, where the host waits for a batch of its workers.
        profiler_ns: how long each step is held up by the profiler itself; no part of `parts`.
    """

    parts: Mapping[str, int]
    spot: Spot | None
    lines: tuple[tuple[str, int], ...]
    sampled: bool
    known: str
    copies: str
    stall: tuple[str, str]
    batch_ns: int = 0
    profiler_ns: int = 0
    loader: LoaderAdvice | None = None

    @property
    def most(self) -> str:
        """The largest part; empty where nothing takes longer."""
        return next(iter(self.parts), "")

    @property
    def source(self) -> tuple[str, str]:
        """The program's line of the largest part, and the framework's."""
        if self.most == "host":
            most = self.lines[0][0] if self.lines else ""
            return (self.spot.source if self.spot else most), ""
        return self.stall if self.most in STALLED else ("", "")

    def change(self, source: str, phase: str) -> tuple[str, ...]:
        """What to do about the largest part.

        Args:
            source: the line that has most of it, if one is known.
            phase: the phase that has most of it.
        """
        if self._saves(phase):
            return CHANGE_OF_SAVING if self.sampled else (*CHANGE_OF_SAVING, SAMPLE)
        if self.most == "copies" and self.copies:
            return CHANGES[self.copies]
        if self.most != "host":
            return CHANGES.get(self.most, UNKNOWN)
        if self.known:
            return KNOWN_CHANGES[self.known]
        if self.loader:
            return self.loader.change
        if self.spot:
            waits_in = self.spot.waits_in
            return change_of_wait(waits_in) if waits_in else CHANGE_OF_CODE
        if source:
            return (*CHANGE_OF_CODE, GARBAGE)
        return (*([] if self.sampled else [SAMPLE]), GARBAGE, *UNKNOWN)

    def _saves(self, phase: str) -> bool:
        """Whether what takes longer is to write the program's state."""
        waits = self.known != "" or (self.spot is not None and self.spot.waits_in != "")
        at_work = self.most == "copies" or (self.most == "host" and not waits)
        return at_work and re.search(SAVES_STATE, phase) is not None

    def label(self, part: str) -> str:
        """A part in words."""
        if part == "copies" and self.copies:
            return f"copies {self.copies}"
        if part == "host" and self.known:
            return self.known
        if part == "host" and self.loader:
            return "waiting for the DataLoader's workers"
        if part == "host" and self.spot and self.spot.waits_in:
            return "waiting for another process or thread"
        return LABELS[part] if part in LABELS else CAUSES[part].label


@dataclass(frozen=True, kw_only=True)
class LongSteps:
    """One row of RUN with longer steps.

    Attributes:
        row: of RUN, with `all_steps` and `all_ns` of its process and device.
        steps: rows of `timeline.steps`.
        excess_ns: how much longer they take, with the steps behind them.
        behind_ns: the part of it that steps right behind them take longer.
    """

    row: Mapping[str, Any]
    steps: pl.DataFrame
    excess_ns: int
    behind_ns: int = 0

    def is_behind(self, other: "LongSteps") -> bool:
        """Whether most of these steps come right behind one of the other's."""
        if self.row["device"] != other.row["device"] or self.row["process"] != other.row["process"]:
            return False
        behind = self.steps["step"].is_in((other.steps["step"] + 1).implode()).sum()
        return 100 * behind >= BEHIND_PCT * len(self.steps) > 0


def periodic_pause(subject: JudgedReport) -> Iterator[Finding]:
    """One finding for each kind of slow step that comes back, and one for all that do not.

    Its cost is spread over all steps after start-up, as it may come back in a part of them only.
    """
    for long in _long_steps(subject):
        row = long.row
        if row["part"] == "recurring":
            often = f"every {number(row['every'])} steps one takes longer"
            yield _finding(subject, long, "periodic-pause", often)
            continue
        one = _not_recompiling(subject, long)
        if len(one.steps) > 1 and 100 * one.excess_ns >= LONGER_PCT * row["all_ns"]:
            count, of = number(len(one.steps)), number(row["all_steps"])
            often = f"{count} of {of} steps take longer, {duration(one.excess_ns)} in all"
            yield _finding(subject, one, "longer-steps", often)


def _not_recompiling(subject: JudgedReport, long: LongSteps) -> LongSteps:
    """Without the steps of which `recompile` says why they are longer."""
    compiling = [one.compiling.select("process", "device", "step") for one in recompiling(subject)]
    if not compiling:
        return long
    steps = long.steps.join(pl.concat(compiling), on=["process", "device", "step"], how="anti")
    return replace(long, steps=steps, excess_ns=int(steps["excess_ns"].sum()))


def _long_steps(subject: JudgedReport) -> list[LongSteps]:
    """The rows of longer steps; none of steps that grow from one to the next. The step after a
    pause often takes longer, too: such rows are part of the pause's."""
    grown = growing(subject.timeline.steps).select(os_pid(pl.col("process")), "device")
    part = pl.col("part").cast(pl.String)
    rows = subject.whole.run.filter(part.is_in(PARTS_OF_STEPS)).with_columns(
        pl.col("count").sum().over("process", "device").alias("all_steps"),
        pl.col("time_ns").sum().over("process", "device").alias("all_ns"),
    )
    rows = rows.filter(part != "typical").drop_nulls("excess_ns")
    rows = rows.join(grown, on=["process", "device"], how="anti")
    if rows.is_empty():
        return []
    every = steps_of_rows(subject.whole.view)
    every = every.with_columns(os_pid(pl.col("process")).alias("pid"))
    long = []
    for row in rows.iter_rows(named=True):
        steps = every.filter(
            pl.col("pid") == row["process"],
            pl.col("device") == row["device"],
            pl.col("part").cast(pl.String) == row["part"],
            pl.col("row_ns") == row["start_ns"],
        ).select(subject.timeline.steps.columns)
        long.append(LongSteps(row=row, steps=steps, excess_ns=row["excess_ns"]))
    return _with_those_behind(long)


def _with_those_behind(long: list[LongSteps]) -> list[LongSteps]:
    """The rows without those right behind a recurring one, which has their excess."""
    kept: list[LongSteps] = []
    for one in sorted(long, key=lambda one: -one.excess_ns):
        pauses = (
            at
            for at, other in enumerate(kept)
            if other.row["part"] == "recurring" and one.is_behind(other)
        )
        at = next(pauses, None)
        if at is None:
            kept.append(one)
            continue
        pause, ns = kept[at], one.excess_ns
        kept[at] = replace(pause, excess_ns=pause.excess_ns + ns, behind_ns=pause.behind_ns + ns)
    return kept


def _finding(subject: JudgedReport, long: LongSteps, rule: str, often: str) -> Finding:
    row = long.row
    count = len(long.steps)
    mean_ns = (long.excess_ns - long.behind_ns) // count
    excess = _excess(subject, long.steps)
    stays_ns = count * (excess.batch_ns + excess.profiler_ns)
    spread_ns = round(max(0, long.excess_ns - stays_ns) / row["all_steps"])
    source, via = excess.source
    known = excess.most == row["cause"]
    culprit = (row["culprit"] or "") if known else ""
    if not (source or via) and known:
        source, via = row["source"] or "", row["via"] or ""
    behind = duration(round(long.behind_ns / row["all_steps"]))
    view = JudgedView(subject.timeline, steps=long.steps)
    retries = retries_in(view) if excess.most in RETRIED else RETRIES.to_frame()
    return Finding(
        rule=rule,
        title=f"{often}: {_what(excess, culprit, row['phase'] or '', line(source, via))}",
        change=excess.change(source, row["phase"] or "")
        if retries.is_empty()
        else CHANGE_OF_RETRIES,
        evidence=(
            f"steps {_numbers(long.steps)} take {duration(mean_ns)} longer than those around them",
            f"more than in a typical step: {_more(excess)}",
            *_places(excess),
            *(excess.loader.evidence if excess.loader else ()),
            *(
                [
                    f"{duration(excess.batch_ns)} of that stay: workers that live on load the first"
                    " batch of an epoch only when it begins"
                ]
                if excess.batch_ns
                else []
            ),
            *(
                [f"the profiler itself holds up each of them for {duration(excess.profiler_ns)}"]
                if excess.profiler_ns
                else []
            ),
            *([] if retries.is_empty() else retries_in_words(subject, view, retries)),
            *([f"{behind} a step of it is in the steps behind them"] if long.behind_ns else []),
        ),
        table="run",
        size_ns=spread_ns,
        steps=count,
        at_most_ns=spread_ns,
        beside=True,
        process=row["process"],
        device=row["device"],
        phase=row["phase"] or "",
        source=source,
        via=via,
        culprit=culprit,
        fits=not retries.is_empty()
        or (excess.most == "host" and (source != "" or excess.known != "")),
    )


def _numbers(steps: pl.DataFrame) -> str:
    """The steps in words: `0, 4 to 9`."""
    return str(listed(steps.select("step", group=pl.lit(0)))["steps"][0])


def _what(excess: Excess, culprit: str, phase: str, where: str) -> str:
    """What takes longer, and where."""
    if not excess.most:
        return f"GPU work{place(phase, where)}"
    large = [part for part, ns in excess.parts.items() if BESIDE * ns >= excess.parts[excess.most]]
    words = culprit or " and ".join(excess.label(part) for part in large[:2])
    if excess.most == "host" and where:
        return f"{words}, {where}" if excess.spot else f"{words}, most at {where}"
    return f"{words}{place(phase, where)}"


def _places(excess: Excess) -> Iterator[str]:
    """Where the program was meanwhile."""
    if excess.spot:
        yield f"the host was mostly at {excess.spot.code}"
    elif excess.lines:
        lines = (f"{code_of(line)} {share} %" for line, share in excess.lines)
        yield f"while the GPU waited for the host, it was at {', '.join(lines)}"


def _more(excess: Excess) -> str:
    whole = sum(excess.parts.values())
    worth = [part for part, ns in excess.parts.items() if 100 * ns >= LEAST_PCT * whole]
    return ", ".join(f"{excess.label(part)} {duration(excess.parts[part])}" for part in worth)


def _excess(subject: JudgedReport, steps: pl.DataFrame) -> Excess:
    """What these steps of one process and GPU have more of than its typical steps."""
    view = JudgedView(subject.timeline, steps=steps)
    process, device = steps[["process", "device"]].row(0)
    same = pl.col("process") == process, pl.col("device") == device
    typical = subject.timeline.steps.filter("steady", *same)
    judged = subject.of_steps and len(subject.judged_steps) == len(typical)
    usual = subject.view if judged else JudgedView(subject.timeline, steps=typical)
    parts, usually = _parts(view, device), _parts(usual, device)
    more = {part: ns - usually[part] for part, ns in parts.items() if ns > usually[part]}
    profiler_ns = more.pop("profiler", 0)
    stacks = pl.DataFrame(schema={"stack": pl.UInt32, "ns": pl.Int64})
    if view.host_stacks is not None:
        stacks = view.host_stacks.select("stack", ns="idle_ns")
    copies, stall = _stalls(view)
    known = known_code(subject, stacks)
    first_batch_ns = 0
    if known == STARTING_WORKERS:
        waiting = stacks_with(subject, WAITS_FOR_BATCH)
        waited = stacks.filter(pl.col("stack").is_in(waiting.implode()))["ns"].sum()
        first_batch_ns = min(int(waited) // len(steps), _batch_ns(subject, process))
    spot = spot_of(subject, stacks)
    waits_for_batch = spot is not None and spot.waits_in == GETS_BATCH and not known
    return Excess(
        parts=dict(sorted(more.items(), key=lambda part: -part[1])),
        spot=spot,
        lines=lines_of(subject, stacks, LEAST_PCT)[:FEW],
        sampled=view.host_stacks is not None,
        known=known,
        copies=copies,
        stall=stall,
        batch_ns=first_batch_ns,
        profiler_ns=profiler_ns,
        loader=loader_advice(subject, subject.process_of(steps)) if waits_for_batch else None,
    )


def _batch_ns(subject: JudgedReport, process: int) -> int:
    """What workers of a process usually take for a batch, of several loaders the quickest; 0 where
    none was recorded. Workers that start take longer until the first one is there."""
    loaders = subject.whole.loader_workers.filter(
        pl.col("worker").is_null(), pl.col("process") == os_pid(pl.lit(process, pl.Int64))
    )
    quickest = loaders["fetch_median_ns"].min()
    return 0 if quickest is None else round(float(quickest))  # type: ignore[arg-type]


def _parts(view: View, device: int) -> dict[str, int]:
    """The parts of a GPU's time in a view's steps, in ns a step."""
    devices = view.events.devices.filter(pl.col("device") == device)
    of = device_parts(view).join(devices, on="device_no", how="semi")
    sums: dict[str, int] = {}
    for part in PARTS:
        name = TOGETHER.get(part, part)
        sums[name] = sums.get(name, 0) + int(of[f"{part}_ns"].sum())
    return {part: ns // max(1, len(view.steps)) for part, ns in sums.items()}


def _stalls(view: View) -> tuple[str, tuple[str, str]]:
    """Where most copies of a view went, and the line of the call that held up most."""
    copied = view.copies.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
    ways = copied.group_by(pl.col("direction").cast(pl.String)).agg(pl.col("ns").sum())
    ways = ways.filter(pl.col("direction").is_in([*WAYS])).sort("ns", "direction")
    calls = view.timeline.stalls[["call", "source", "via"]]
    idle = view.charges.group_by("call").agg(pl.col("ns").sum())
    ran = copied.drop_nulls("call").group_by("call").agg(pl.col("ns").sum())
    lines = (
        pl.concat([idle[["call", "ns"]], ran[["call", "ns"]]])
        .join(calls, on="call")
        .group_by(pl.col("source", "via").cast(pl.String).fill_null(""))
        .agg(pl.col("ns").sum())
        .sort("ns", "source", "via")
    )
    stall = (str(lines["source"][-1]), str(lines["via"][-1])) if len(lines) else ("", "")
    return (WAYS[ways["direction"][-1]] if len(ways) else ""), stall
