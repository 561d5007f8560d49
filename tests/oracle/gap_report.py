"""The gap report (spec §21), from the rows of step_parts and steps."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from statistics import median
from typing import Any

from tests.oracle.comparing import median_step
from tests.oracle.report import Row

Line = tuple[str, str, str, int]
"""Place, cause, function, step_pct."""
Place = tuple[str, str, str]
TrackKey = tuple[Any, ...]

GROUPS = dict.fromkeys(("host", "launch", "api", "queue_delay"), "launching")
GROUPS |= dict.fromkeys(("sync", "blocking_copy"), "waiting")
CALLED = ("sync", "blocking_copy", "alloc", "module_load")
SMALLER = ("(all smaller ones)", "", "")


def gap_report(parts: Sequence[Row], steps: Sequence[Row]) -> list[Line]:
    """§21: the lines of the CSV, in order."""
    durations, idle = _tracks(parts, steps)
    places = {place for rows in idle.values() for place in rows}
    lines, listed = [], set()
    for place in sorted(places):
        share, low, _ = _largest(durations, {key: idle[key][place] for key in durations})
        if _has_a_line(share, low):
            listed.add(place)
            lines.append((*place, nearest(share, [1, 2, 5, 10, 20, 50, 100])))
    if durations:
        rest = {
            key: {
                step: sum(idle[key][place][step] for place in places - listed)
                for step in durations[key]
            }
            for key in durations
        }
        share, _, _ = _largest(durations, rest)
        lines.append((*SMALLER, nearest(share, [1, 10, 100])))
    return lines


def _tracks(
    parts: Sequence[Row], steps: Sequence[Row]
) -> tuple[dict[TrackKey, dict[Any, int]], dict[TrackKey, dict[Place, dict[Any, int]]]]:
    """§21.1 to §21.3: of each track, how long each of its steps is; and by place its idle time."""
    steady = {(*_key(row), row["step"]) for row in steps if row["steady"]}
    with_steady = {step[:-1] for step in steady}
    durations: dict[TrackKey, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
    idle: dict[TrackKey, dict[Place, dict[Any, int]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(int))
    )
    for row in parts:
        key = _key(row)
        if key in with_steady and (*key, row["step"]) not in steady:
            continue
        durations[key][row["step"]] += row["ns"]
        if row["part"] == "idle":
            idle[key][_place(row)][row["step"]] += row["ns"]
    return durations, idle


def _key(row: Row) -> TrackKey:
    return row["report"], row["process"], row["device"]


def _place(row: Row) -> Place:
    """§21.2."""
    kind: str = row["kind"]
    line: str = row["source"] or row["via"] or ""
    return (
        row["phase"] or "(outside ranges)",
        GROUPS.get(kind, kind),
        function(line) if kind in CALLED else "",
    )


def function(line: str) -> str:
    """`step (train.py)` of `train.py:42 in step`."""
    if " in " not in line:
        return line
    at = line.rindex(" in ")
    return f"{line[at + 4 :]} ({line[: line.rindex(':', 0, at)]})"


def _largest(
    durations: dict[TrackKey, dict[Any, int]], idle: dict[TrackKey, dict[Any, int]]
) -> tuple[Fraction, Fraction | None, Fraction]:
    """§21.4: the share, the interval's lower end as a share, and the time."""
    found = []
    for key, lengths in durations.items():
        whole = Fraction(median(lengths.values()))
        middle, interval = median_step([idle[key][step] for step in sorted(lengths, key=_order)])
        low = None if interval is None else Fraction(interval[0])
        found.append((Fraction(middle) / whole, low, Fraction(middle), whole))
    share, low, ns, whole = max(found, key=lambda row: (row[0], row[1] or 0, row[2]))
    return share, None if low is None else low / whole, ns


def _order(step: int | None) -> int:
    return -1 if step is None else step


def _has_a_line(share: Fraction, low: Fraction | None) -> bool:
    """§21.5."""
    if share < Fraction(1, 100) and low is not None:
        return low >= Fraction(5, 1000)
    return share >= Fraction(5, 1000)


def nearest(share: Fraction, scale: list[int]) -> int:
    """§21.6: by ratio; of two, the larger."""
    if share == 0:
        return scale[0]
    return min(scale, key=lambda pct: (max(100 * share / pct, pct / (100 * share)), -pct))
