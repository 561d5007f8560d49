"""What `nsysflow whatif` and findings predict against what was saved: writes docs/accuracy.md, and
the log of all comparisons at the end of docs/facts.md.

    python -m benchmarks.accuracy

Reads the samples, where a program was changed and recorded again, and the simulated programs of the
tests, whose true savings are known. Nothing is timed, so that every run writes the same pages.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from shlex import split
from typing import Final

import nsysflow
from benchmarks.first_findings import SKIPPED, Outcome, first_findings, outcomes
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.replay import Lengths, Recorded, lengths, recorded
from nsysflow.analysis.replay.whatif import lengths_after
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.base.units import duration
from nsysflow.cli.whatif import whatif
from tests.analysis.replay.sites import Site, sites
from tests.reports import ROOT, SAMPLES

PAGE: Final = ROOT / "docs" / "accuracy.md"
FACTS: Final = ROOT / "docs" / "facts.md"
LOG: Final = "## Predictions and what came true"
"""The heading in facts.md from which on it is written here."""

CONSTRUCTED: Final = ROOT / "benchmarks" / "constructed" / "results.md"
"""The table of idle time that was made on purpose, as `benchmarks.constructed` printed it."""

CAPTURED: Final = tuple(
    ROOT / "benchmarks" / f"{name}.md" for name in ("power", "gap_report_stability")
)
"""The last parts of the page: the benchmarks of these names measure them, from captures that do not
ship."""

CHANGES: Final = frozenset(field.name for field in fields(Changes))
"""The options of `nsysflow whatif` that change something."""


GUIDE: Final = """\
# What was predicted, and what came true

A finding says what its change would save. These programs were recorded, changed as the page's first
finding says, and recorded again, on one or two H200s ([the pages](case-studies.md)). A prediction
came true if it is within 10 % of what was saved, or within 1 % of the step. Before and after are
recorded steps: both hold what the profiler costs.

| program | first finding | a step takes | predicted saving | real saving | came true |
| --- | --- | ---: | ---: | ---: | --- |"""

GUIDE_REST: Final = """
Of the {aimed} changes that do no more than their finding, {good} came true. The other {more} do
something else besides, which the last column names: their finding counts one part of the change.
`up to` marks an upper bound.

What to keep in mind:

- **Savings here are of the recorded step**, as these reports hold no other. The profiler slows host
  code and launches. Where a step was timed without recording, savings are of that one
  ([reading.md](reading.md)); [facts.md](facts.md#savings-and-plain-runs) compares such savings with
  plain runs.
- **A replay knows waits, not competition.** In {programs} simulated programs, of which the true
  saving is known, {waits} of {all_waits} predictions for waits came true, and {host} of {all_host}
  for host code. What missed has threads or streams that compete for the GPU.
- **Captures of one program differ.** Of {splits} ways to compare captures of unchanged programs,
  two beside the others, {quiet} showed no significant change. So compare three a side, and record
  before and after in turn.
- **One capture of few steps shows only large changes.** With 40 steps a side, a step that got 10 %
  longer was seen in {seen} of the cases, depending on how much the program's steps vary.

All comparisons, with every figure, and how and when they were made:
[facts.md](facts.md#predictions-and-what-came-true)."""

GUIDE_CAUSES: Final = """
## Is the cause right?

40 random programs of PyTorch, each of which makes the GPU wait 120 times for known reasons, were
recorded on H100s (`python -m benchmarks.constructed`, 2026-11-28, nsys 2025.3). What was made is
told from operations, ranges and the times of calls alone. The last two columns are shares of the
idle time: those with the right cause, and those with the right range too. Of eight more programs,
recorded on two H200s (2026-11-30), the shares are 97.8 to 100 % and 96.1 to 100 %.
"""

GUIDE_CAUSES_REST: Final = """
Where two causes are given, either counts. PyTorch copies pageable memory with a copy and a wait.
The GPU itself takes some us after a launch. The causes `profiler` and `unknown` cannot be made on
purpose.

Samples also name the function that Python runs. Of three programs, 71 % of the idle time in which
Python was busy had the right function. One sample a ms is too few for what takes 0.1 ms. Another
11 % was of a second thread: there the function that waits for this thread was named."""

INTRODUCTION: Final = f"""\
{LOG}

Made by `python -m benchmarks.accuracy` from the samples and the simulated programs of the tests;
the last two parts are of captures that do not ship. Recorded is compared with recorded: both sides
hold what the profiler costs. A prediction is good within 10 % of the saving or 1 % of the step (of
simulated programs, the window). [accuracy.md](accuracy.md) says in short what came of it.
"""

PAIRS_INTRODUCTION: Final = """\
## Programs that were changed and recorded again

Mean of the steps from the second one on; the first holds the start of the profiler.

| before → after | change | step before, ms | predicted, ms | saved, ms | off, of the saving \
| of the step | good |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"""

PAIRS_REMARK: Final = """
Rows without a verdict are of remedies that change more than the wait: `alloc_churn` and `metrics`
also lose the host code around it (the second row), `graph_break` runs other kernels. Their first
row is the wait's part of the saving."""

SIMULATED_INTRODUCTION: Final = """\
## Simulated programs

44 programs of 22 classes, each simulated again without the site. Controls are waits that hurt
nobody.

| sites | good | of |
| --- | ---: | ---: |"""

MISSES_INTRODUCTION: Final = """
Not good, since threads or streams that compete for the GPU keep the order that they had:

| program | site | window, ms | predicted, ms | saved, ms | off, of the window |
| --- | --- | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A sample, the sample of its remedy, and the change that stands for that.

    Attributes:
        before: the sample.
        after: the sample with the remedy.
        change: options of `nsysflow whatif`.
        also: further ones for what the remedy does to the host besides.
        aimed: the remedy does no more than the change, so that the prediction should hold.
    """

    before: str
    after: str
    change: str
    also: str = ""
    aimed: bool = True


PAIRS: Final = (
    Pair(before="dataload-sync", after="dataload-async", change="--remove sync"),
    Pair(before="h2d-pageable", after="h2d-pinned", change="--async-copies"),
    Pair(before="h2d-pinned_blocking", after="h2d-pinned", change="--async-copies"),
    Pair(before="nan_check-sync", after="nan_check-async", change="--remove sync"),
    Pair(before="launch_bound-eager-plain", after="launch_bound-graph", change="--graph step"),
    Pair(before="rolloutcopy-fused", after="rolloutcopy-graph", change="--graph step"),
    Pair(before="trainforward-fused", after="trainforward-graph", change="--graph step"),
    Pair(before="trainstep-fused", after="trainstep-graph", change="--graph step"),
    Pair(
        before="alloc_churn-empty_cache",
        after="alloc_churn-cached",
        change="--remove alloc",
        also="--faster-host step/metrics=0",
        aimed=False,
    ),
    Pair(
        before="metrics-each_step",
        after="metrics-at_end",
        change="--remove all",
        also="--faster-host step/metrics=0",
        aimed=False,
    ),
    Pair(
        before="graph_break-breaks",
        after="graph_break-fullgraph",
        change="--remove all",
        aimed=False,
    ),
)


@cache
def timeline(name: str) -> Timeline:
    """A sample, taken apart."""
    trace = nsysflow.load(SAMPLES / f"{name}.sqlite.xz", shapes=False)
    return Timeline(trace, Options(skip=SKIPPED))


@cache
def recording(name: str) -> Recorded:
    """What a sample's program did."""
    return recorded(timeline(name))


def changes(typed: str) -> Changes:
    """Changes as the command line takes them."""
    params = whatif.make_context("whatif", ["REPORT", *split(typed)]).params
    return Changes(**{name: value for name, value in params.items() if name in CHANGES})


def step_ns(of: Lengths) -> int:
    """A step that is there."""
    assert of.step_ns is not None
    return of.step_ns


def predicted_ns(name: str, change: str) -> int:
    """What a change of a sample saves of a step, by the replay."""
    before = lengths(timeline(name))
    return step_ns(before) - step_ns(
        lengths_after(timeline(name), recording(name), changes(change))
    )


def page() -> Iterator[str]:
    """The lines of docs/accuracy.md."""
    yield GUIDE
    found = outcomes()
    yield from map(_came_true, found)
    aimed = [outcome for outcome in found if not outcome.remedy.besides]
    hits = {kind: [site.hit for site in sites() if site.kind == kind] for kind in ("stall", "host")}
    quiet, splits = _splits()
    yield GUIDE_REST.format(
        good=sum(outcome.good for outcome in aimed),
        aimed=len(aimed),
        more=len(found) - len(aimed),
        programs=len({site.program for site in sites()}),
        waits=sum(hits["stall"]),
        all_waits=len(hits["stall"]),
        host=sum(hits["host"]),
        all_host=len(hits["host"]),
        quiet=quiet,
        splits=splits,
        seen=_seen_with_40_steps(),
    )
    yield GUIDE_CAUSES
    yield CONSTRUCTED.read_text().rstrip()
    yield GUIDE_CAUSES_REST


def _came_true(outcome: Outcome) -> str:
    remedy, first = outcome.remedy, outcome.first
    bound = "" if first is None or first.finding.method == "replay" else "up to "
    came_true = remedy.besides or ("yes" if outcome.good else "**no**")
    cells = (
        f"`{remedy.before}` → `{remedy.after}`",
        first.finding.rule if first else "none",
        duration(outcome.step_ns),
        f"{bound}{duration(outcome.said_ns)}",
        duration(outcome.saved_ns),
        came_true,
    )
    return f"| {' | '.join(cells)} |"


def _splits() -> tuple[int, int]:
    """In how many comparisons of unchanged programs nothing was seen, and how many there were."""
    row = re.search(r"^\| all \| (\d+) \| (\d+) ", _captured("power"), re.MULTILINE)
    assert row is not None
    return int(row[2]), int(row[1])


def _seen_with_40_steps() -> str:
    """The range of the shares in which a slowdown of 10 % was seen: `40 to 100 %`."""
    part = _captured("power").partition("### One capture a side")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| `[^|]*\| 40 \|(.*)\|$", part, re.MULTILINE)
    shares = [int(row.split("|")[4].strip().removesuffix(" %")) for row in rows]
    return f"{min(shares)} to {max(shares)} %"


def _captured(name: str) -> str:
    (part,) = (part for part in CAPTURED if part.stem == name)
    return part.read_text(encoding="utf-8")


def log() -> Iterator[str]:
    """The lines of the log, the last part of docs/facts.md."""
    yield INTRODUCTION
    yield from first_findings()
    yield ""
    yield from _pairs()
    yield ""
    yield from _simulated()
    for part in CAPTURED:
        yield ""
        yield part.read_text(encoding="utf-8").rstrip()


def with_log(facts: str) -> str:
    """docs/facts.md with the log as it is now."""
    return "\n".join([facts.partition(f"{LOG}\n")[0].rstrip(), "", *log()]) + "\n"


def _pairs() -> Iterator[str]:
    yield PAIRS_INTRODUCTION
    for pair in PAIRS:
        yield _row(pair, pair.change)
        if pair.also:
            yield _row(pair, f"{pair.change} {pair.also}")
    yield PAIRS_REMARK


def _row(pair: Pair, change: str) -> str:
    before = step_ns(lengths(timeline(pair.before)))
    saved = before - step_ns(lengths(timeline(pair.after)))
    said = predicted_ns(pair.before, change)
    off = abs(said - saved)
    good = off <= max(0.1 * abs(saved), 0.01 * before)
    cells = (
        f"`{pair.before}` → `{pair.after}`",
        f"`{change}`",
        *(f"{ns / 1e6:.3f}" for ns in (before, said, saved)),
        f"{100 * off / abs(saved):.1f} %",
        f"{100 * off / before:.1f} %",
        ("yes" if good else "**no**") if pair.aimed else "",
    )
    return f"| {' | '.join(cells)} |"


def _simulated() -> Iterator[str]:
    found = sites()
    yield SIMULATED_INTRODUCTION
    kinds = {"stall": "waits", "host": "host code", "graph": "launches as one graph"}
    for kind, words in kinds.items():
        of_kind = [site for site in found if site.kind == kind]
        yield f"| {words} | {sum(site.hit for site in of_kind)} | {len(of_kind)} |"
    controls = [site for site in found if site.control]
    quiet = sum(site.said_ns <= 0.005 * site.window_ns for site in controls)
    yield f"| controls, at most 0.5 % of the window | {quiet} | {len(controls)} |"
    yield MISSES_INTRODUCTION
    yield from (_miss(site) for site in found if not site.hit)


def _miss(site: Site) -> str:
    off = abs(site.said_ns - site.saves_ns)
    times = (f"{ns / 1e6:.3f}" for ns in (site.window_ns, site.said_ns, site.saves_ns))
    cells = (site.program, site.name, *times, f"{100 * off / site.window_ns:.1f} %")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Write both pages."""
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")
    FACTS.write_text(with_log(FACTS.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stderr.write(f"wrote {PAGE.name} and {FACTS.name}\n")


if __name__ == "__main__":
    main()
