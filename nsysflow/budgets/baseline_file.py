"""A baseline as a file for git: every figure on a line of its own, in a stable order."""

import json
from collections.abc import Sequence
from math import isclose
from pathlib import Path
from statistics import fmean, median
from typing import Final

import msgspec

import nsysflow
from nsysflow.base.errors import CheckError, Damaged
from nsysflow.budgets.baseline import Baseline, Known, known_of, names_of
from nsysflow.budgets.figures import Figure, figures_of, ranks_of
from nsysflow.compare.captures import Capture

SCHEMA: Final = "nsysflow-baseline-1"
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


class _Document(msgspec.Struct):
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
        "steps": sum(len(ranks_of(each)[0].steps) for each in captures),
    }
    figures = figures_of(captures).values()
    about = ",\n".join(f"{_text(name)}: {_text(value)}" for name, value in head.items())
    lines = ",\n".join(f"{_text(each.name)}: {_line(each, captures)}" for each in figures)
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
        document = msgspec.json.decode(file.read_bytes(), type=_Document)
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


def _check(document: _Document) -> None:
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


def _difference(document: _Document, capture: Capture) -> str:
    """Why their times cannot be compared, a clause; empty if they can."""
    gpus = _gpus(capture)
    if len(document.gpus) != len(gpus):
        return f"different numbers of ranks: {len(document.gpus)} and {len(gpus)}"
    if document.gpus != gpus:
        ours, theirs = (", ".join(dict.fromkeys(each)) for each in (document.gpus, gpus))
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
    return _text(held | {"runs": [_rounded(median(run), scale) for run in known.runs]})


def _known(held: _Figure, scale: float) -> Known:
    return Known(
        value=held.value * scale,
        low=None if held.low is None else held.low * scale,
        high=None if held.high is None else held.high * scale,
        runs=[[each * scale] for each in held.runs],
        has_steps=False,
    )


def _scale(figure: Figure) -> float:
    return _NS_PER_MS if figure.unit == "ns" else 1.0


def _rounded(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value / scale, _DECIMALS)


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
