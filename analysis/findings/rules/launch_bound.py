"""`launch-bound`: launching kernels one by one takes longer than running them.

Each launch costs the host 5 to 20 us, with what Python and the framework do around it 20 us and
more. A GPU whose kernels are shorter waits before each. A CUDA graph launches all of them at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis.events.classes import GRAPH_LAUNCH
from nsysflow.analysis.findings.finding import Finding, line, place
from nsysflow.analysis.findings.host_functions import running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.columns import matching
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.tables.launches import launches_outside
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import duration, number, whole_percent

WORTH_PCT: Final = 5
"""A graph needs static shapes and buffers: nobody rebuilds a step for less. Steps that are not
launch-bound lose 0.5 to 3.8 % to pauses (samples, 2026-11-20)."""

STARVED_PCT: Final = 30
"""At least this share of a phase's launches must find the GPU idle: 66 % in the forward of
h200-gpt2-eager and 91 % in that of h200-hf-trainer, but 19 % where a cudaFree or a copy stopped the
GPU before (alloc_churn, h2d)."""

MUCH_PCT: Final = 12
"""Pauses that take more are the host's, however few launches they stand before: 16 % of a step in
h200-ddp-messages, 13 pauses of 0.1 ms. Around the stalls of alloc_churn they are 9.5 %."""

FEW_PCT: Final = 10
"""So little of the pauses may be of data loading or long pieces of Python for a graph to stand for
the whole step."""

MOST_NS: Final = 250_000
"""A launch and what the framework does around it take no longer: 20 to 220 us (samples,
2026-11-20). A GPU that waits longer before each waits for other host code."""

LEAST_LAUNCHES: Final = 3
"""Fewer launches a step are no matter of launching: one graph would hardly be less."""

OFTEN: Final = 10
"""A kernel that is launched so many times a step may stand in a loop …"""

OPERATORS: Final = r"^(?:aten::|autograd::|torch::autograd::)|Backward\d*$"
"""Operators of PyTorch, by their names in its traces: `aten::addmm`, `AddmmBackward0`."""

MANY_LAUNCHES: Final = 20
"""Fewer pauses of a window are no loop of launches, but start-up."""

MANY_WAITS: Final = 10
"""Fewer waits a step, such as for a loss and a norm, leave graphs that are worth it."""

OWN_FINDING_PCT: Final = 1
"""Waits at one place that cost as much of a step have a finding of their own."""

MOST_NAMED: Final = 3
"""… So many are named."""

CHANGE: Final = (
    "torch.compile(mode='reduce-overhead'): fewer kernels, launched as one CUDA graph",
    "capture the step with torch.cuda.graph where its shapes do not change",
    "larger batches, so that each kernel takes longer than its launch",
)
OF_COMPILED: Final = (
    "torch.compile(mode='reduce-overhead') launches what is compiled already as CUDA graphs",
    "fewer graph breaks and one compiled region for the whole step: TORCH_LOGS=graph_breaks",
    "larger batches, so that each kernel takes longer than its launch",
)
FEWER_GRAPHS: Final = (
    "capture more in each CUDA graph, also what is launched beside them: fewer, larger graphs",
    "larger batches or several steps in a graph, so that it takes longer than its launch",
)


def launch_bound(subject: JudgedReport) -> Iterator[Finding]:
    """The step whose GPU waits for launches and for the framework's code between them."""
    if subject.mostly_captures:
        return
    if not subject.of_steps:
        yield from _without_steps(subject)
        return
    short = _short_pauses(subject)
    size_ns = subject.worst_ns(short, "ns")
    if short.is_empty() or 100 * size_ns < WORTH_PCT * subject.step_ns:
        return
    if not launches_cost(subject):
        return
    phases = short.group_by("phase").agg(pl.col("ns").sum()).sort("ns", "phase")
    phase = str(phases["phase"][-1])
    launches, starved = _launches(subject, phase)
    little = 100 * size_ns < MUCH_PCT * subject.step_ns
    if little and 100 * starved < STARVED_PCT * launches:
        return
    graphs, graphed = _graphs(subject), _graphed(subject)
    if graphs is None:
        return
    of_graphs = graphs > 0
    what = (
        f"{number(graphs)} CUDA graphs" if of_graphs else f"{number(_per_step(subject))} launches"
    )
    source, via = _lines(subject, phase)
    ran = running(subject, phase)
    where = f" in {ran.mostly}" if phase == OUTSIDE and ran.mostly else ""
    share = whole_percent(int(phases["ns"][-1]), int(phases["ns"].sum()))
    pauses = round(len(short) / subject.steps)
    waits = _waits(subject)
    yield Finding(
        rule="launch-bound",
        title=f"{what} a step keep the GPU waiting, most{where or place(phase, line(source, via))}",
        change=_change(subject, waits),
        fits=_captures_graphs(subject),
        evidence=(
            _paused(pauses, "a step for launches and the code between them", size_ns),
            f"{share} of that{place(phase)}, where {whole_percent(starved, launches)} of the"
            " launches find the GPU idle",
            *([] if of_graphs else _most_launched(subject)),
            *([] if waits is None else [waits.evidence]),
            *ran.evidence,
        ),
        table="launches",
        size_ns=size_ns,
        steps=subject.steps,
        changes=None if of_graphs else Changes(graphs=graphed or subject.step_paths),
        exact=bool(graphed) and not waits,
        at_most_ns=size_ns,
        process=subject.process_of(short),
        phase=phase,
        source=source,
        via=via,
    )


def launches_cost(subject: JudgedReport) -> bool:
    """Whether launching is what the GPU waits for in the short pauses inside steps; else it is the
    host code between a few launches. Without steps nothing says that."""
    if not subject.of_steps:
        return True
    short = _short_pauses(subject)
    if len(subject.view.launching) < LEAST_LAUNCHES * subject.steps:
        return False
    return bool(short["ns"].sum() <= MOST_NS * len(short))


@dataclass(frozen=True, kw_only=True)
class _Waits:
    """The waits inside steps, at each of which a CUDA graph ends.

    Attributes:
        count: how many there are a step.
        most: the line that has most of them, or the phase.
        share_pct: what share it has.
    """

    count: int
    most: str
    share_pct: int

    @property
    def evidence(self) -> str:
        """How often a step waits, as a sentence."""
        times = f"a step waits {number(self.count)} times, {self.share_pct} % of that{self.most}"
        return f"{times}: a CUDA graph ends at each wait"

    @property
    def change(self) -> tuple[str, ...]:
        """What to do about launches between them."""
        return (
            f"wait less often, most{self.most}: then torch.compile(mode='reduce-overhead') makes"
            " fewer kernels, and one CUDA graph of all between two waits",
            *CHANGE[2:],
        )


def _waits(subject: JudgedReport) -> _Waits | None:
    """Those of a step that waits often; None where it does not. Waits that cost something have a
    finding of their own, and come before a graph."""
    waits = subject.stalls.filter(pl.col("kind") != "alloc", _in_step(subject))
    places = waits.group_by("source", "via", "at_phase").agg(pl.len(), pl.col("idle_ns").sum())
    cheap = 100 * pl.col("idle_ns") < OWN_FINDING_PCT * subject.step_ns * subject.steps
    places = places.filter(cheap).sort("len", "source", "via", "at_phase")
    every = int(places["len"].sum())
    count = round(every / subject.steps)
    if count < MANY_WAITS:
        return None
    source, via, phase, most, _ = places.row(-1)
    at = f" at {line(source, via)}" if source or via else place(phase)
    return _Waits(count=count, most=at, share_pct=100 * most // every)


def _most_launched(subject: JudgedReport) -> Iterator[str]:
    """The kernels that are launched most often, as a sentence; none where each is a few times."""
    counts = subject.kernels.group_by(pl.col("short_name").alias("name")).len()
    a_step = (pl.col("len") / subject.steps).round().cast(pl.Int64).alias("count")
    times = counts.select(pl.col("name").cast(pl.String), a_step)
    often = times.filter(pl.col("count") >= OFTEN).sort(-pl.col("count"), "name").head(MOST_NAMED)
    if not often.is_empty():
        named = ", ".join(f"{name} {number(count)}" for name, count in often.iter_rows())
        times_a_step = ", times a step" if subject.of_steps else ""
        yield f"kernels launched most often{times_a_step}: {named}"


def _change(subject: JudgedReport, waits: _Waits | None = None) -> tuple[str, ...]:
    if _captures_graphs(subject):
        return FEWER_GRAPHS
    if subject.frameworks.compiled:
        return OF_COMPILED
    return CHANGE if waits is None else waits.change


def _captures_graphs(subject: JudgedReport) -> bool:
    """Whether each step launches CUDA graphs of the program's own, beside other work or not. XLA
    makes some without being asked."""
    if "jax" in subject.frameworks.names:
        return False
    names = subject.view.events.calls["name"][subject.view.launching["call"]]
    return int(matching(names, GRAPH_LAUNCH).sum()) >= subject.steps


def _short_pauses(subject: JudgedReport) -> pl.DataFrame:
    """The pauses inside steps that a graph shortens."""
    saves = pl.col("phase").is_in(subject.saving_phases)
    return subject.pauses.filter(~_other(), _in_step(subject), ~saves)


def _other() -> pl.Expr:
    """Pauses that are no graph's matter."""
    return pl.col("long") | pl.col("data") | pl.col("loads_code")


def _in_step(subject: JudgedReport) -> pl.Expr:
    phase = pl.col("phase") + "/"
    return pl.any_horizontal(phase.str.starts_with(prefix) for prefix in subject.step_prefixes)


def _launches(subject: JudgedReport, phase: str) -> tuple[int, int]:
    """How many launches a phase has, and how many of them find the GPU idle."""
    if phase == OUTSIDE:
        return launches_outside(subject.view)
    rows = subject.launches.filter(pl.col("path") == phase)
    return int(rows["launches"].sum()), int(rows["starved_launches"].sum())


def _per_step(subject: JudgedReport) -> int:
    steps = [prefix.removesuffix("/") for prefix in subject.step_prefixes]
    if not subject.steps_marked or "" in steps:  # no range is around all of a step
        return round(len(subject.view.launching) / subject.steps)
    return round(sum(_launches(subject, path)[0] for path in steps) / subject.steps)


def _parts(subject: JudgedReport, prefix: str) -> list[str]:
    """The phases that launch something right below a path of this prefix."""
    phases = subject.launches.filter(pl.col("launches") > 0)["path"].to_list()
    return [
        path for path in phases if path.startswith(prefix) and path.count("/") == prefix.count("/")
    ]


def _graphs(subject: JudgedReport) -> int | None:
    """How many CUDA graphs a step launches, if that is most of what it launches, else 0;
    None for a step that is one graph: it cannot be launched by less."""
    view = subject.view
    names = view.events.calls["name"][view.launching["call"]]
    graphs = int(matching(names, GRAPH_LAUNCH).sum())
    if 2 * graphs < len(names):
        return 0
    per_step = round(graphs / subject.steps)
    return per_step if per_step > 1 else None


def _graphed(subject: JudgedReport) -> tuple[str, ...]:
    """What can become graphs: the step; or, where much of it is no graph's matter, or most of it
    lies outside the range that marks it, the phases in it of which little is; empty where there
    are none."""
    pauses = subject.pauses.filter(_in_step(subject))
    beside = subject.kernels_outside and not subject.timeline.step_paths["path"].has_nulls()
    if not beside and _are_of_graphs(pauses):
        return subject.step_paths
    parts = [path for prefix in subject.step_prefixes for path in _parts(subject, prefix)]
    parts += [OUTSIDE] if beside else []
    return tuple(path for path in parts if _are_of_graphs(pauses.filter(_is_in(path))))


def _is_in(path: str) -> pl.Expr:
    """Whether a pause is in this phase or one inside it."""
    return (pl.col("phase") + "/").str.starts_with(f"{path}/")


def _are_of_graphs(pauses: pl.DataFrame) -> bool:
    """Whether a graph shortens nearly all of these pauses."""
    other_ns = pauses.filter(_other())["ns"].sum()
    return bool(100 * other_ns <= FEW_PCT * pauses["ns"].sum())


def _lines(subject: JudgedReport, phase: str) -> tuple[str, str]:
    """The lines whose launches keep the GPU waiting longest in a phase; empty where unknown, and
    where only a few launches have a line (`profile --backtrace waits`)."""
    rows = subject.tables.gap_summary.filter(pl.col("phase") == phase, pl.col("cause") == "launch")
    known = rows.drop_nulls("source")
    if 2 * known["total_ns"].sum() < rows["total_ns"].sum():
        return "", ""
    key = pl.col("source", "via").fill_null("")
    lines = known.group_by(key).agg(pl.col("total_ns").sum()).sort("total_ns", "source", "via")
    return ("", "") if lines.is_empty() else lines.select("source", "via").row(-1)


def _without_steps(subject: JudgedReport) -> Iterator[Finding]:
    """The launches of a report in which no steps are judged: those of its starved windows, else
    those of PyTorch's operators, if these are what the GPU waits for."""
    starved = [*_starved(subject)]
    yield from starved or _dispatched(subject)


def _paused(count: int, why: str, size_ns: int) -> str:
    each = duration(size_ns // max(1, count))
    return f"the GPU pauses {number(count)} times {why}: {duration(size_ns)} in all, {each} each"


def dispatches(subject: JudgedReport) -> bool:
    """Whether most of the idle time of host code and launches is of PyTorch's operators: what the
    host ran then is the launching."""
    stacks = subject.tables.host_stacks
    of_operators = stacks["function"].cast(pl.String).str.contains(OPERATORS).fill_null(value=False)
    return bool(0 < stacks["idle_ns"].sum() <= 2 * stacks["idle_ns"].filter(of_operators).sum())


def _dispatched(subject: JudgedReport) -> Iterator[Finding]:
    """The short pauses in which operators launch one by one."""
    short = subject.pauses.filter(~_other())
    size_ns = subject.worst_ns(short, "ns")
    launches = len(subject.view.launching)
    often = len(short) >= MANY_LAUNCHES and 100 * len(short) >= STARVED_PCT * launches
    worth = 100 * size_ns >= WORTH_PCT * subject.step_ns
    if not (often and worth and size_ns <= MOST_NS * len(short) and dispatches(subject)):
        return
    phases = short.group_by("phase").agg(pl.col("ns").sum()).sort("ns", "phase")
    phase = str(phases["phase"][-1])
    yield Finding(
        rule="launch-bound",
        title=f"{number(launches)} launches one by one keep the GPU waiting, most{place(phase)}",
        change=_change(subject),
        fits=_captures_graphs(subject),
        evidence=(
            _paused(len(short), "for launches and the operators around them", size_ns),
            *_most_launched(subject),
            *running(subject, phase).evidence,
        ),
        table="launches",
        size_ns=size_ns,
        steps=1,
        at_most_ns=size_ns,
        process=subject.process_of(short),
        phase=phase,
    )


def _starved(subject: JudgedReport) -> Iterator[Finding]:
    """The starved windows."""
    starved = subject.tables.starved
    saved = pl.col("end_ns") - pl.col("start_ns") - pl.col("graph_estimate_ns")
    rows = starved.with_columns(saved.clip(lower_bound=0).alias("saved_ns"))
    size_ns = subject.worst_ns(rows, "saved_ns")
    if rows.is_empty() or 100 * size_ns < WORTH_PCT * subject.step_ns:
        return
    most = rows.sort("saved_ns", "phase").row(-1, named=True)
    yield Finding(
        rule="launch-bound",
        title=f"{number(int(rows['ops'].sum()))} operations launched one by one, most"
        f"{place(most['phase'])}",
        change=CHANGE,
        evidence=(
            f"{number(len(rows))} stretches in which the GPU waits for launches:"
            f" {duration(subject.worst_ns(rows, 'launch_idle_ns'))} of launch overhead",
            *running(subject, most["phase"]).evidence,
        ),
        table="starved",
        size_ns=size_ns,
        steps=1,
        at_most_ns=size_ns,
        phase=most["phase"],
    )
