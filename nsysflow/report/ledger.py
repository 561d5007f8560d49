"""The ledger in words: of what all recorded time consists, and which other loops there are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import line, without_function
from nsysflow.analysis.findings.other_loop import AFTER_START_UP
from nsysflow.base.names import OUTSIDE, one_line
from nsysflow.base.units import duration, number, whole_percent
from nsysflow.report.results import Results

Row = Mapping[str, Any]

LONG: Final = ("recurring", "longer")
"""The parts of steps that take much longer than those around them."""

MOST_LOOPS: Final = 2
"""So many other loops have a line each."""

MOST_NAMED: Final = 3
"""So many parts are named in the sentence; the table has all. …"""

NAMED_PCT: Final = 5
"""… Each is at least this share of the time after start-up."""


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """The recorded time of one process on one GPU.

    Attributes:
        rows: its rows of `run`, in their order.
    """

    rows: tuple[Row, ...]

    def of(self, *parts: str) -> list[Row]:
        """The rows of these parts."""
        return [row for row in self.rows if row["part"] in parts]

    def time_ns(self, *parts: str) -> int:
        """How long these parts took; all of them without names."""
        return sum(row["time_ns"] for row in self.rows if not parts or row["part"] in parts)

    @property
    def steps(self) -> int:
        """How many steps were recorded, in part or as a whole."""
        return sum(row["count"] for row in self.rows if row["part"] != "loop")


def slowest_ledger(results: Results) -> Ledger:
    """The ledger of the process and GPU with the longest steps in the mean; empty without steps."""
    table = results.table("run")
    key = ["report", "process", "device"]
    steps = table.filter(pl.col("part").cast(pl.String).is_in(["typical", *LONG]))
    means = steps.group_by(key).agg((pl.col("time_ns").sum() / pl.col("count").sum()).alias("ns"))
    first = means.sort("ns", *key, descending=[True, False, False, False]).head(1)
    if first.is_empty():
        first = table.select(key).head(1)
    return Ledger(rows=tuple(table.join(first, on=key, how="semi").to_dicts()))


def ledger_sentence(results: Results) -> str:
    """`60 steps in 6.1 s: start-up 4.3 s, then 1.6 s: typical steps 278 ms (17 %), 5 pauses every
    10 steps 1.32 s (82 %, save, checkpoint_each.py:10)`; empty without steps."""
    ledger = slowest_ledger(results)
    if not ledger.rows:
        return ""
    whole = f"{number(ledger.steps)} step{'' if ledger.steps == 1 else 's'} in"
    whole += f" {duration(ledger.time_ns())}: start-up {duration(ledger.time_ns('start-up'))}"
    run_ns = ledger.time_ns(*AFTER_START_UP)
    if not run_ns:
        return f"{whole}, end {duration(ledger.time_ns('end'))}"
    parts = sorted(ledger.of(*AFTER_START_UP), key=lambda row: -row["time_ns"])
    large = [row for row in parts if 100 * row["time_ns"] >= NAMED_PCT * run_ns][:MOST_NAMED]
    lines = _lines_of_pauses(results)
    named = [_part(row, run_ns, lines.get(_key(row), "")) for row in large]
    rest_ns = run_ns - sum(row["time_ns"] for row in large)
    if rest_ns:
        named.append(f"the rest {duration(rest_ns)} ({whole_percent(rest_ns, run_ns)})")
    if [row["part"] for row in parts] == ["typical"]:
        then = f"then {duration(run_ns)} of typical steps"
    else:
        then = f"then {duration(run_ns)}: {', '.join(named)}"
    return f"{whole}, {then}; end {duration(ledger.time_ns('end'))}"


_Key = tuple[str, int | None, int | None, str, int]


def _key(row: Row) -> _Key:
    times = row["count"] if row["part"] == "recurring" else 0
    return row["report"], row["process"], row["device"], row["phase"] or "", times


def _lines_of_pauses(results: Results) -> dict[_Key, str]:
    """The line that a finding gives to pauses: samples may know it better than the next call. Empty
    where two findings may be of the same row."""
    lines: dict[_Key, str] = {}
    for valued in results.found.valued:
        one = valued.finding
        if one.rule in ("periodic-pause", "longer-steps"):
            # the second may be without some of the row's steps (`recompile`)
            times = one.steps if one.rule == "periodic-pause" else 0
            key = valued.report, one.process, one.device, one.phase, times
            lines[key] = "" if key in lines else line(one.source, one.via)
    return lines


def _part(row: Row, run_ns: int, known: str) -> str:
    """`5 pauses every 10 steps 1.32 s (82 %, save, checkpoint_each.py:10)`."""
    share = whole_percent(row["time_ns"], run_ns)
    about = [share, *(_where(row, known) if row["part"] in LONG else ())]
    return f"{part_name(row)} {duration(row['time_ns'])} ({', '.join(about)})"


def part_name(row: Row) -> str:
    """What a row is called: `5 pauses every 10 steps`."""
    count = number(row["count"])
    several = "" if row["count"] == 1 else "s"
    names = {
        "start-up": "start-up",
        "typical": "typical steps",
        "recurring": f"{count} pauses every {number(row['every'] or 0)} steps",
        "longer": f"{count} longer step{several}",
        "loop": f"{one_line(row['phase'] or OUTSIDE)}, {count} step{several}",
        "between": "between loops",
        "end": "end",
    }
    return names[row["part"]]


def _where(row: Row, known: str) -> Iterator[str]:
    """The phase and line of a pause, as far as they are known: the line of its finding first."""
    if row["phase"] and row["phase"] != OUTSIDE:
        yield one_line(row["phase"])
    if at := known or line(row["source"] or "", row["via"] or ""):
        yield without_function(at)


def loop_rows(results: Results) -> list[Row]:
    """The rows of `run` of the other loops, the longest first."""
    return sorted(slowest_ledger(results).of("loop"), key=lambda row: -row["time_ns"])


def other_loops(results: Results) -> tuple[str, ...]:
    """`also: step_async, 6 steps, 90 % waiting for the host: nsysflow analyze … --step step_async`,
    for the longest other loops, and how many more there are."""
    loops = loop_rows(results)
    named = [_other_loop(results, row) for row in loops[:MOST_LOOPS]]
    more = len(loops) - len(named)
    loops_in_words = "1 more loop" if more == 1 else f"{number(more)} more loops"
    return (*named, *([f"{loops_in_words}: --table run"] if more else []))


def _other_loop(results: Results, row: Row) -> str:
    busy = f"{whole_percent(row['busy_ns'], row['time_ns'])} of the time the GPU works"
    lost = ""
    if row["cause"] and 2 * row["busy_ns"] < row["time_ns"]:
        busy = ""
        lost = f"{whole_percent(row['cause_ns'], row['time_ns'])} {CAUSES[row['cause']].label}"
    of = f"{part_name(row)} in {duration(row['time_ns'])}, {busy or lost}"
    return f"also: {of}: nsysflow analyze {results.step_again(row['phase'])}"
