"""What a program took before, as a file for git, and a figure as a ratio to it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, isclose
from pathlib import Path
from statistics import fmean
from typing import Final, Literal

import msgspec

import nsysflow
from nsysflow.base.errors import CheckError, Damaged
from nsysflow.compare.budgets import Figure, figures_of, ranks_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.change import mean_step, needed_for
from nsysflow.compare.comparison import obstacles
from nsysflow.compare.statistics import (
    RUNS_NEEDED,
    mean_ratio_interval,
    steps_for_a_mean,
)


@dataclass(frozen=True, kw_only=True)
class Known:
    """A figure as it was.

    Attributes:
        value: its mean, in the figure's unit.
        low: the lower end of its interval; None where it is not known.
        high: the upper end.
        runs: a value for each step of each capture, or each capture's mean alone.
        has_steps: whether it is each step.
    """

    value: float
    low: float | None
    high: float | None
    runs: Sequence[Sequence[float]]
    has_steps: bool


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What budgets compare with.

    Attributes:
        name: where it is from.
        known: a figure as it was; None where it has none of that name.
        again: what to type to write the file anew; empty where it is of captures.
    """

    name: str
    known: Callable[[Figure], Known | None]
    again: str = ""


def baseline_of(captures: Sequence[Capture]) -> Baseline:
    """Captures as a baseline."""
    figures = figures_of(captures)

    def known(figure: Figure) -> Known | None:
        return known_of(figures[figure.name], captures) if figure.name in figures else None

    return Baseline(name=names_of(captures), known=known)


def known_of(figure: Figure, captures: Sequence[Capture]) -> Known:
    """A figure of captures."""
    runs = [figure.values(capture) for capture in captures]
    middle = mean_step(runs)
    return Known(value=middle.value, low=middle.low, high=middle.high, runs=runs, has_steps=True)


def names_of(captures: Sequence[Capture]) -> str:
    """What to call several captures."""
    return ", ".join(capture.name for capture in captures)


def refuse_unlike(base: Sequence[Capture], new: Sequence[Capture]) -> None:
    """Refuse to take captures together that differ in GPU, ranks, precision, or as programs.

    Raises:
        CheckError: they do.
    """
    reasons = obstacles(base, new) if base and new else []
    if reasons:
        seen = (
            f"{names_of(base)} and {names_of(new)} cannot be judged together: {'; '.join(reasons)}"
        )
        raise CheckError(seen, "Record both in the same way")


SCHEMA: Final = "nsysflow-baseline-2"
"""What the file begins with. Another meaning of a figure takes another number."""

_HEAD_BYTES: Final = 200
_NS_PER_MS: Final = 1e6
_DECIMALS: Final = 6
"""Of a ms these are whole ns."""


class _Figure(msgspec.Struct):
    value: float
    low: float | None
    high: float | None
    runs: list[float]


class _BaselineFile(msgspec.Struct):
    schema: str
    gpus: list[str]
    unit: str | None
    captures: int
    figures: dict[str, _Figure]


def is_baseline(file: Path) -> bool:
    """Whether a file is such a file, as far as its head tells."""
    try:
        with file.open("rb") as text:
            return SCHEMA.rstrip("0123456789").encode() in text.read(_HEAD_BYTES)
    except OSError:
        return False


def baseline_json(captures: Sequence[Capture]) -> str:
    """The file of captures: all figures that budgets can name.

    Raises:
        CheckError: a capture has no steps.
    """
    head = {
        "schema": SCHEMA,
        "tool": f"nsysflow {nsysflow.__version__}",
        "gpus": _gpus(captures[0]),
        "unit": captures[0].unit,
        "captures": len(captures),
        "steps": sum(len(ranks_of(capture)[0].steps) for capture in captures),
    }
    figures = figures_of(captures).values()
    about = ",\n".join(f"{_text(name)}: {_text(value)}" for name, value in head.items())
    lines = ",\n".join(f"{_text(figure.name)}: {_line(figure, captures)}" for figure in figures)
    return f'{{\n{about},\n"figures": {{\n{lines}\n}}\n}}\n'


def read_baseline(file: Path, captures: Sequence[Capture], again: str) -> Baseline:
    """A file that `baseline_json` made, as the baseline of captures.

    Args:
        file: where it is.
        captures: what will be compared with it.
        again: what to type to write it anew.

    Raises:
        Damaged: it cannot be read, is cut off, or was edited.
        CheckError: it is of another GPU, number of ranks or precision.
    """
    advice = "Write it anew from captures of the program as it should be"
    try:
        document = msgspec.json.decode(file.read_bytes(), type=_BaselineFile)
        _check(document)
    except OSError as error:
        raise Damaged(f"{file} cannot be read: {error.strerror}", advice, again) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise Damaged(f"{file} is no sound baseline: {error}", advice, again) from error
    difference = _difference(document, captures[0])
    if difference:
        seen = f"{file} and {names_of(captures)} cannot be compared: {difference}"
        raise CheckError(seen, "Keep a baseline for each; to write this one anew", again)

    def known(figure: Figure) -> Known | None:
        held = document.figures.get(figure.name)
        return None if held is None else _known(held, _scale(figure))

    return Baseline(name=str(file), known=known, again=again)


def _check(document: _BaselineFile) -> None:
    """Check that nsysflow wrote the file.

    Raises:
        ValueError: it is of another version, or contradicts itself.
    """
    if document.schema != SCHEMA:
        msg = f"its schema is {document.schema}, this nsysflow reads {SCHEMA}"
        raise ValueError(msg)
    for name, held in document.figures.items():
        if not held.runs or len(held.runs) != document.captures:
            msg = f"{name} has {len(held.runs)} runs, but there are {document.captures} captures"
            raise ValueError(msg)
        low, high = (held.value if end is None else end for end in (held.low, held.high))
        mean = isclose(held.value, fmean(held.runs), abs_tol=2 * 10**-_DECIMALS)
        if not (mean and low <= held.value <= high):
            msg = f"the value of {name} does not fit its interval and runs; somebody edited it"
            raise ValueError(msg)


def _difference(document: _BaselineFile, capture: Capture) -> str:
    """Why their times cannot be compared, a clause; empty if they can."""
    gpus = _gpus(capture)
    if len(document.gpus) != len(gpus):
        return f"different numbers of ranks: {len(document.gpus)} and {len(gpus)}"
    if document.gpus != gpus:
        ours, theirs = (", ".join(dict.fromkeys(names)) for names in (document.gpus, gpus))
        return f"different GPUs: {ours} and {theirs}"
    if document.unit and capture.unit and document.unit != capture.unit:
        return f"different precision: {document.unit} and {capture.unit}"
    return ""


def _gpus(capture: Capture) -> list[str]:
    return sorted(capture.gpus)


def _line(figure: Figure, captures: Sequence[Capture]) -> str:
    """A figure as the file has it: times in ms."""
    known, scale = known_of(figure, captures), _scale(figure)
    ends = {"value": known.value, "low": known.low, "high": known.high}
    held = {name: _rounded(value, scale) for name, value in ends.items()}
    return _text(held | {"runs": [_rounded(fmean(run), scale) for run in known.runs]})


def _known(held: _Figure, scale: float) -> Known:
    return Known(
        value=held.value * scale,
        low=None if held.low is None else held.low * scale,
        high=None if held.high is None else held.high * scale,
        runs=[[value * scale] for value in held.runs],
        has_steps=False,
    )


def _scale(figure: Figure) -> float:
    return _NS_PER_MS if figure.unit == "ns" else 1.0


def _rounded(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value / scale, _DECIMALS)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a figure lies.

    Attributes:
        low: its lower end; None where there are too few steps or captures to say.
        high: its upper end.
        counted: what it counts.
        needed: how many of them would show on which side of the limit it lies; None if none.
    """

    low: float | None
    high: float | None
    counted: Literal["step", "run"]
    needed: int | None


def ratio(known: Known, runs: Sequence[Sequence[float]], factor: float) -> Interval:
    """The interval of a figure, in its unit: that of its ratio to the baseline, times the baseline.

    Args:
        known: the baseline, above 0.
        runs: the figure in each step of each capture.
        factor: the largest ratio.
    """
    if not known.has_steps and len(runs) == len(known.runs) == 1:
        return _quotient(known, runs, factor)
    value = mean_step(runs).value
    distance = abs(value - factor * known.value)
    counted: Literal["step", "run"] = "step" if len(runs) == len(known.runs) == 1 else "run"
    ends = mean_ratio_interval(known.runs, runs)
    if ends is None:
        needed = RUNS_NEEDED
        if counted == "step":
            needed = max(steps_for_a_mean(run) for run in (known.runs[0], runs[0]))
        return Interval(low=None, high=None, counted=counted, needed=needed)
    low, high = (known.value * end for end in ends)
    count = len(runs[0]) if counted == "step" else len(runs)
    needed_now = enough(count, (high - low) / 2, distance)
    return Interval(low=low, high=high, counted=counted, needed=needed_now)


def _quotient(known: Known, runs: Sequence[Sequence[float]], factor: float) -> Interval:
    """The same of two captures, of which one has only its interval left: each figure may lie
    anywhere in its own."""
    middle = mean_step(runs)
    distance = abs(middle.value - factor * known.value)
    if middle.low is None or middle.high is None or known.low is None or known.high is None:
        return Interval(low=None, high=None, counted="step", needed=needed_for(runs, distance))
    low = middle.low * known.value / known.high
    high = middle.high * known.value / known.low if known.low else inf
    needed = enough(middle.count, (high - low) / 2, distance)
    return Interval(low=low, high=high, counted="step", needed=needed)


def enough(count: int, reach: float, distance: float) -> int | None:
    """How many it takes for a shorter reach, which narrows with the root of their number."""
    if not distance or reach == inf:
        return None
    return max(count + 1, ceil(count * (reach / distance) ** 2))
