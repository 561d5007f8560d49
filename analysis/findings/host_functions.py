"""What the host ran while the GPU waited, in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from nsysflow.analysis.events.source_lines import OWN, code_frames, without_line
from nsysflow.analysis.findings.finding import in_function
from nsysflow.analysis.findings.frameworks import WRAPPERS
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.frames.columns import repeated
from nsysflow.analysis.frames.parallel import kept_with
from nsysflow.analysis.idle.samples import WAITS
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from nsysflow.base.names import OUTSIDE
from nsysflow.base.units import whole_percent

_CODE: Final = ("function", "source", "via")
"""The columns of HOST_STACKS that say which code it is."""

FEW: Final = 3
"""So many functions are named in a sentence."""

LEAST_PCT: Final = 5
"""A function that takes less is not named."""

COLLECTING: Final = "garbage collection"
STARTING_WORKERS: Final = "starting a DataLoader's workers"

KNOWN_CODE: Final[Mapping[str, str]] = {
    COLLECTING: r"(?i)(?:^|[/_. ])gc(?:$|[_. ])|garbage",
    STARTING_WORKERS: r"torch/utils/data/dataloader\.py (?:_get_iterator|_shutdown_workers)$",
}
"""Code that has advice of its own, in words, and the files and functions that it is known by."""

LOOP_SHARE: Final = 0.9
"""A function that makes more of the launches is the loop itself, or nearly all of it. What it waits
for and computes belongs to many things."""

CHANGE_OF_WAIT: Final = (
    "ask for it earlier, and keep one ready ahead: two requests or more under way at any time",
    "make the other side faster: more workers, less to send",
)

CHANGE_OF_PROCESS: Final = (
    "start the process, and read its answer some steps later: subprocess.Popen",
    "start it less often, or on another thread",
    "ask a library instead: pynvml for what nvidia-smi prints",
)
CHANGES_OF_WAIT: Final = (CHANGE_OF_WAIT, CHANGE_OF_PROCESS)
"""What to do about waits for others, which no GPU can take over."""


def change_of_wait(waits_in: str) -> tuple[str, ...]:
    """What to do about a wait for another thread or process.

    Args:
        waits_in: the library's function in which the host waits; `communicate` is subprocess's.
    """
    return CHANGE_OF_PROCESS if waits_in == "communicate" else CHANGE_OF_WAIT


CUDNN_ATTENTION: Final = "aten::_cudnn_attention"
"""The operators in which cuDNN builds a plan for each new length of sequences. Steps of a serving
loop took 67 to 92 ms with it, and 18 to 26 ms without (H100, docs/facts.md)."""

CHANGE_OF_PLANS: Final = (
    "cuDNN builds a plan for each new length: torch.backends.cuda.enable_cudnn_sdp(False)",
    "or keep the lengths the same from step to step: pad to a few, a static KV cache",
)

AT_THE_LINE: Final = (
    "the time is in this line itself, not in the functions that it calls: it may free what they"
    " made"
)


@dataclass(frozen=True, kw_only=True)
class Spot:
    """The line of the program in which the host mostly was.

    Attributes:
        source: the line, e.g. `speech.py:22 in log_mel`.
        waits_in: the library's function in which it waits there for another thread or process;
            empty where it computes.
        stacks: those of its function or line, with all that this calls.
    """

    source: str
    waits_in: str
    stacks: frozenset[int] = field(default=frozenset(), repr=False)

    @property
    def code(self) -> str:
        """`log_mel (speech.py:22)`; `get in train (actors.py:57)` where it waits."""
        place, _, function = self.source.rpartition(" in ")
        return f"{self.waits_in} in {function} ({place})" if self.waits_in else code_of(self.source)


@dataclass(frozen=True, kw_only=True)
class Running:
    """What the host ran while the GPU waited for it in a phase.

    Attributes:
        mostly: the code that takes at least half of that time; empty where none does.
        most: the code that takes more of it than any other; empty where no sample says.
        source: the program's line of `mostly`; empty where that has none.
        via: the framework's line, if `source` only calls that framework; else empty.
        waits_in: the library's function in which it waits there for another thread or process;
            empty where it computes.
        evidence: what ran, as a sentence; no sentence where no sample says.
        shares: of the host's time in each of the phases the part that `mostly` takes; no phase
            where it is not one piece of code: none is known, or it waits for others.
    """

    mostly: str = ""
    most: str = ""
    source: str = ""
    via: str = ""
    waits_in: str = ""
    evidence: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict)

    def part(self, phase: str) -> float:
        """What part of the host's time in a phase goes if `mostly` takes none, in hundredths; all
        of it where no code is named."""
        return round(self.shares.get(phase, 1.0), 2)

    @property
    def change(self) -> tuple[str, ...]:
        """What to change about this code in particular; empty where nothing is known."""
        if self.waits_in:
            return change_of_wait(self.waits_in)
        return CHANGE_OF_PLANS if self.mostly.startswith(CUDNN_ATTENTION) else ()


def functions(host_stacks: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The idle time of each function that is known: `function`, `source`, `via`, `by` and
    `idle_ns`, most idle time first. Lines of one caller are one row, with the line that has most.

    Args:
        host_stacks: `HOST_STACKS`.
        by: other columns that differ between rows.
    """
    known = host_stacks.filter(pl.col("function") != NOT_SAMPLED)
    lines = known.group_by(*_CODE, *by).agg(pl.col("idle_ns").sum())
    most_first = lines.sort(-pl.col("idle_ns"), *_CODE, *by)
    caller = without_line(pl.coalesce("via", "source")).alias("caller")
    summed = most_first.group_by("function", caller, *by, maintain_order=True).agg(
        pl.col("source", "via").first(), pl.col("idle_ns").sum()
    )
    return summed.sort(-pl.col("idle_ns"), *_CODE, *by)


def code(row: Mapping[str, Any]) -> str:
    """`tokenize in collate (train.py:88)`: what ran, and who called it where.

    Args:
        row: of HOST_STACKS. `via` says more than a line that only calls a framework. Where `via` is
            the function itself, the line that called it says more.
    """
    function: str = row["function"]
    place, _, caller = _line_of(row).rpartition(" in ")
    if not place:
        return function
    line = f"{caller} ({place})"
    return line if caller == function else f"{function} in {line}"


def _line_of(row: Mapping[str, Any]) -> str:
    """Where the code of a row was called."""
    source, via = row["source"] or "", row["via"] or ""
    itself = via.endswith(f" in {row['function']}") and source
    return source if itself else via or source


def lock_share(subject: JudgedReport, *phases: str) -> float:
    """Of the idle time of host code and launches in these phases (`OUTSIDE` for no range), not in
    those inside them, the share in which the host waits for Python's lock (GIL), recorded or
    estimated; 0 where that is not known."""
    instants = subject.view.gil_instants
    if instants is None:
        return 0.0
    names = subject.view.attribution.paths["joined"].cast(pl.String)
    here = names[instants["path"]].fill_null(OUTSIDE).is_in(phases)
    waits = instants["stack"].is_not_null()
    whole_ns = int(instants["ns"].filter(here).sum())
    return int(instants["ns"].filter(here & waits).sum()) / whole_ns if whole_ns else 0.0


def running(subject: JudgedReport, *phases: str) -> Running:
    """What the host ran in these phases (`OUTSIDE` for no range), not in those inside them."""
    here = pl.col("phase").is_in(["" if phase == OUTSIDE else phase for phase in phases])
    stacks = subject.tables.host_stacks.filter(here)
    whole_ns = int(stacks["idle_ns"].sum())
    every = functions(stacks)
    worth = every.filter(100 * pl.col("idle_ns") >= LEAST_PCT * whole_ns).head(FEW)
    if worth.is_empty() or subject.view.host_stacks is None:
        return Running()
    named = [
        (code(row), whole_percent(row["idle_ns"], whole_ns)) for row in worth.iter_rows(named=True)
    ]
    (first, share), *others = named
    rest = "".join(f", {ran} {share}" for ran, share in others)
    spot = spot_of(subject, subject.view.host_stacks.filter(here).select("stack", ns="idle_ns"))
    alone = 2 * worth["idle_ns"][0] >= whole_ns
    waits = spot is not None and spot.waits_in != ""
    mostly = first if alone and not waits else spot.code if spot else ""
    line = worth.row(0, named=True) if alone and not waits else {}
    between_calls = spot is not None and mostly == first == spot.code and _calls(subject, spot)
    shares = {}
    if line:
        shares = _shares(stacks, _goes_with(subject, line))
    elif spot is not None and not waits:
        goes = pl.col("stack").is_in(spot.stacks).fill_null(value=False)
        shares = _shares(subject.view.host_stacks.filter(here), goes)
    return Running(
        mostly=mostly,
        most=first,
        source=(line["source"] or "") if line else spot.source if spot else "",
        via=line.get("via") or "",
        waits_in=spot.waits_in if spot else "",
        evidence=(
            f"while the GPU waited for the host there, it ran {first} {share} of the time{rest}",
            *([AT_THE_LINE] if between_calls else []),
        ),
        shares=shares,
    )


def _goes_with(subject: JudgedReport, row: Mapping[str, Any]) -> pl.Expr:
    """Which rows of HOST_STACKS go if the code of a row of `functions` takes no time: those of this
    function and caller; of a function of the program also what it calls of libraries, and of a
    library's function what else its line calls. The program's other functions have names of their
    own, and so have the parts of the loop itself."""
    line, function = _line_of(row), row["function"]
    called = without_line(pl.coalesce("via", "source"))
    caller = without_line(pl.lit(row["via"] or row["source"], pl.String))
    alone: pl.Expr = (pl.col("function") == function) & called.eq_missing(caller)
    if not line or is_loop(subject, in_function(line)):
        return alone
    at, place = pl.col("source", "via"), pl.lit(line)
    if line.endswith(f" in {function}"):
        at, place = without_line(at), without_line(place)
    there: pl.Expr = pl.any_horizontal(at.eq_missing(place))
    return alone | there


def _shares(ran: pl.DataFrame, goes: pl.Expr) -> dict[str, float]:
    """Of each phase (`OUTSIDE` for no range) the share of the rows that go.

    Args:
        ran: `phase` and `idle_ns`.
        goes: which rows go.
    """
    goes_ns = pl.col("idle_ns").filter(goes).sum()
    share = (goes_ns / pl.col("idle_ns").sum()).fill_nan(0).alias("share")
    phase = pl.col("phase").replace("", OUTSIDE)
    return dict(ran.group_by(phase).agg(share).sort("phase").rows())


def spot_of(subject: JudgedReport, stacks: pl.DataFrame) -> Spot | None:
    """Where in the program the host was for at least half of the time that samples tell of; None
    where no line has that, and where samples tell of less than half.

    It is the innermost line with so much, or the function called there that has it, at its line
    with most. The loop itself is no spot if its time is spread over its lines. Where a trainer
    calls the program, its lines count as the program's.

    Args:
        subject: the report.
        stacks: `stack` (null where no sample tells) and `ns`.
    """
    spent = stacks.drop_nulls("stack").group_by("stack").agg(pl.col("ns").sum())
    known_ns = int(spent["ns"].sum())
    if 2 * known_ns < int(stacks["ns"].sum()) or known_ns <= 0:
        return None
    wrapped = any(name in WRAPPERS for name in subject.frameworks.names)
    program = pl.lit(value=True) if wrapped else pl.col("kind") == OWN
    frames = frames_of_code(subject).filter(program).join(spent, on="stack")
    function = without_line(pl.col("line")).alias("called")
    frames = frames.with_columns(function)
    outer = _mostly(frames, "line", known_ns / 2)
    if outer is None:
        return None
    at = frames.filter(pl.col("line") == outer).group_by("stack").agg(until=pl.col("depth").min())
    inside = frames.join(at, on="stack").filter(pl.col("depth") < pl.col("until"))
    inner = _mostly(inside, "called", known_ns / 2)
    source = outer
    if inner is not None:
        lines = inside.filter(pl.col("called") == inner).unique(["stack", "line"])
        sums = lines.group_by("line").agg(pl.col("ns").sum()).sort(-pl.col("ns"), "line")
        source = str(sums["line"][0])
        spread = 2 * sums["ns"][0] < int(lines.unique("stack")["ns"].sum())
        if spread and is_loop(subject, in_function(source)):
            return None
    chosen = pl.col("line") == outer if inner is None else pl.col("called") == inner
    here = frames.filter(chosen).group_by("stack").agg(pl.col("ns").first(), pl.col("depth").min())
    inside_it = frozenset(here["stack"].to_list())
    return Spot(source=source, waits_in=_waits_in(subject, here), stacks=inside_it)


def lines_of(
    subject: JudgedReport, stacks: pl.DataFrame, least_pct: int
) -> tuple[tuple[str, int], ...]:
    """The innermost lines of the program, each with its whole percents of the time; largest first.

    Args:
        subject: the report.
        stacks: as for `spot_of`.
        least_pct: lines with less are left out.
    """
    own = frames_of_code(subject).filter(pl.col("kind") == OWN).sort("stack", "depth")
    lines = own.unique("stack", keep="first").select("stack", "line")
    spent = stacks.join(lines, on="stack").group_by("line").agg(pl.col("ns").sum())
    percents = 100 * pl.col("ns") // max(1, int(stacks["ns"].sum()))
    worth = spent.with_columns(percents.alias("pct")).filter(pl.col("pct") >= least_pct)
    return tuple(worth.sort(-pl.col("ns"), "line").select("line", "pct").rows())


def known_code(subject: JudgedReport, stacks: pl.DataFrame) -> str:
    """Which of `KNOWN_CODE` runs in at least half of this time; empty where none does.

    Args:
        subject: the report.
        stacks: as for `spot_of`.
    """
    whole_ns = int(stacks["ns"].sum())
    for words, pattern in KNOWN_CODE.items():
        running = stacks_with(subject, pattern)
        ns = int(stacks.filter(pl.col("stack").is_in(running.implode()))["ns"].sum())
        if 2 * ns >= whole_ns > 0:
            return words
    return ""


def stacks_with(subject: JudgedReport, pattern: str) -> pl.Series:
    """The stacks that have a frame whose file and function, with a space between, match."""
    frames = subject.timeline.trace.frames
    named = pl.concat_str(
        pl.col("file", "function").cast(pl.String), separator=" ", ignore_nulls=True
    )
    return frames.filter(named.str.contains(pattern))["stack"].unique()


def is_loop(subject: JudgedReport, function: str) -> bool:
    """Whether a function of the program is the loop itself: it and what it calls make nearly all of
    the judged launches, as far as samples tell.

    Args:
        subject: the report.
        function: as `finding.in_function` has it.
    """
    return launch_share(subject, function, subject.view.launching["call"]) > LOOP_SHARE


def launch_share(subject: JudgedReport, function: str, calls: pl.Series) -> float:
    """The share of these launches that a function of the program makes, with what it calls, as far
    as samples tell; 0 where they do not.

    Args:
        subject: the report.
        function: as `finding.in_function` has it.
        calls: rows of the trace's calls.
    """
    stacks = stacks_at(subject, calls).drop_nulls()
    frames = frames_of_code(subject)
    lines = [line for line in frames["line"].unique() if in_function(line) == function]
    inside = frames.filter(pl.col("line").is_in(lines))["stack"].unique()
    return int(stacks.is_in(inside.implode()).sum()) / max(1, len(stacks))


def launched_in(subject: JudgedReport, ops: pl.Series) -> Spot:
    """Where the program launches most of these operations, as far as samples tell; a spot without a
    line where none does.

    Args:
        subject: the report.
        ops: rows of the trace's operations.
    """
    spot = spot_of(subject, _launching_stacks(subject, ops))
    return spot or Spot(source="", waits_in="")


def called_from(subject: JudgedReport, ops: pl.Series) -> Spot:
    """The innermost line of the program from which nearly all of these operations are launched, at
    any depth. If a loop calls a module, this is the loop's line. The spot is empty where there is
    no such line.

    Args:
        subject: the report.
        ops: rows of the trace's operations.
    """
    stacks = _launching_stacks(subject, ops)
    sums = stacks.group_by("stack").agg(pl.col("ns").sum())
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN).join(sums, on="stack")
    return Spot(source=_mostly(frames, "line", LOOP_SHARE * len(stacks)) or "", waits_in="")


def _launching_stacks(subject: JudgedReport, ops: pl.Series) -> pl.DataFrame:
    """`stack`, the one that launched each of these operations, null where none is known. Each
    launch counts as 1 `ns`."""
    calls = subject.view.launches.filter(pl.col("op").is_in(ops.implode()))["call"]
    return stacks_at(subject, calls).to_frame("stack").with_columns(ns=1)


def stacks_at(subject: JudgedReport, calls: pl.Series) -> pl.Series:
    """The stack that made each launch, a row of the trace's calls; null where none is known."""
    known = subject.timeline.launch_stacks
    return repeated(None, len(calls), pl.UInt32) if known is None else known["stack"][calls]


def _calls(subject: JudgedReport, spot: Spot) -> bool:
    """Whether the spot's line also calls functions of the program; the spot is without those."""
    frames = frames_of_code(subject).filter(pl.col("kind") == OWN)
    calling = (pl.col("line") == spot.source) & (pl.col("stack") == pl.col("stack").shift(1))
    return bool(frames.select(calling.any()).item())


def _mostly(frames: pl.DataFrame, name: str, least_ns: float) -> str | None:
    """The innermost line or function that has at least so much of the time."""
    once = frames.sort("depth").unique(["stack", name], keep="first", maintain_order=True)
    sums = once.group_by(name).agg(pl.col("ns").sum(), pl.col("depth").min())
    most = sums.filter(pl.col("ns") >= least_ns).sort("ns", "depth", name)
    return None if most.is_empty() else str(most[name][0])


def _waits_in(subject: JudgedReport, stacks: pl.DataFrame) -> str:
    """The library's function in which these stacks wait for at least half of their time, as the
    program calls it; empty where they do not.

    Args:
        subject: the report.
        stacks: `stack`, `ns`, and the `depth` of the program's own frame.
    """
    inner = subject.timeline.trace.frames.join(stacks.rename({"depth": "own"}), on="stack")
    inner = inner.filter(pl.col("depth") < pl.col("own"))
    function = pl.col("function").cast(pl.String)
    waits = function.str.contains(WAITS)
    standing = inner.filter(pl.col("depth") == 0, waits)[["stack", "ns"]]
    if standing.is_empty() or 2 * int(standing["ns"].sum()) < int(stacks["ns"].sum()):
        return ""
    called = inner.filter(waits).join(standing.select("stack"), on="stack", how="semi")
    outermost = called.sort("stack", "depth").unique("stack", keep="last", maintain_order=True)
    sums = outermost.group_by(function.alias("function")).agg(pl.col("ns").sum())
    return str(sums.sort(-pl.col("ns"), "function")["function"][0])


def frames_of_code(subject: JudgedReport) -> pl.DataFrame:
    """`code_frames` of the report, made once."""
    frames, own = subject.timeline.trace.frames, subject.timeline.options.own
    return kept_with(subject, "frames of code", lambda: code_frames(frames, own))


def code_of(source: str) -> str:
    """`log_mel (speech.py:22)` of `speech.py:22 in log_mel`."""
    place, _, function = source.rpartition(" in ")
    return f"{function} ({place})" if place else source
