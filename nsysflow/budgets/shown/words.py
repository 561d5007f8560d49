"""What is said of a judged budget, the same on every page."""

from typing import Final, Literal

from nsysflow.base.units import duration, number, percent, significant
from nsysflow.budgets.figures import Unit
from nsysflow.budgets.judging import Judged, Measured

MOST: Final[dict[Literal["step", "run"], int]] = {"step": 10_000, "run": 50}
"""Nobody records more to judge a change."""


def value_text(value: float, unit: Unit) -> str:
    """A figure as people read it: `3.85 ms`, `4.4 %`, `589`."""
    if unit == "ns":
        return duration(round(value))
    if unit == "pct":
        return percent(value) if value else "0 %"
    return number(int(value)) if value == int(value) else significant(value)


def measured_text(judged: Judged, captures: int) -> str:
    """What was measured; of a finding, whether it is there."""
    measured = judged.measured
    if measured is not None:
        return value_text(measured.value, measured.unit)
    if not judged.found_in:
        return "none"
    return "found" if captures == 1 else f"found in {judged.found_in} of {captures}"


def interval_text(measured: Measured | None) -> str:
    """Where the figure lies; empty where that is not known, or is the figure itself."""
    if measured is None or measured.low is None or measured.high is None:
        return ""
    if measured.low == measured.high:
        return ""
    low, high = (value_text(each, measured.unit) for each in (measured.low, measured.high))
    return f"{low} to {high}"


def limit_text(measured: Measured | None) -> str:
    """The limit, and what it is of the baseline."""
    if measured is None:
        return "none"
    return value_text(measured.most, measured.unit)


def margin_text(measured: Measured | None) -> str:
    """How far from the limit: `1.15 ms left (23 %)`, `400 us over (8 %)`, `2.1 points over`."""
    if measured is None:
        return ""
    off = abs(measured.value - measured.most)
    side = "over" if measured.value > measured.most else "left"
    if measured.unit == "pct":
        return f"{significant(off)} points {side}"
    share = f" ({percent(100 * off / measured.most)})" if off and measured.most else ""
    return f"{value_text(off, measured.unit)} {side}{share}"


def verdict_text(judged: Judged) -> str:
    """The verdict, and how many steps or captures it would take to have one."""
    if judged.verdict != "too noisy":
        return judged.verdict
    measured = judged.measured
    if measured is None:
        return "too noisy: the captures disagree"
    if measured.needed is None:
        return "too noisy: too close to the limit"
    counted = "captures" if measured.counted == "run" else "steps"
    if measured.needed > MOST[measured.counted]:
        return f"too noisy: no practical number of {counted} would tell"
    side = "" if measured.factor is None else " a side"
    return f"too noisy: about {number(measured.needed)} {counted}{side} would tell"


def sentence(judged: Judged, captures: int) -> str:
    """All of it, for an annotation or a test's message."""
    said = [measured_text(judged, captures)]
    if judged.measured is not None:
        interval = interval_text(judged.measured)
        said[0] += f" ({interval})" * bool(interval)
        said += [f"limit {limit_text(judged.measured)}", margin_text(judged.measured)]
    return f"{', '.join(said)}; {verdict_text(judged)}"


def outcome(judged: list[Judged]) -> str:
    """What became of all budgets, in a line."""
    crossed = sum(each.verdict == "crossed" for each in judged)
    noisy = sum(each.verdict == "too noisy" for each in judged)
    of_all = f"of {len(judged)} budget{'s' * (len(judged) != 1)}"
    if crossed:
        return f"crossed: {crossed} {of_all}" + f"; too noisy to judge: {noisy}" * bool(noisy)
    if noisy:
        return f"too noisy to judge: {noisy} {of_all}; none is crossed"
    return f"within: {len(judged)} {of_all}"
