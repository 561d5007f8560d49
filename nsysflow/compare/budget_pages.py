"""Judgement budgets for people, for programs, and for the pages of a CI."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from textwrap import wrap
from typing import Any, Final, Literal
from xml.etree import ElementTree as ET

import nsysflow
from nsysflow.base.names import printable
from nsysflow.base.units import duration, number, percent, significant
from nsysflow.compare.budgets import Unit, ranks_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.judging import Culprit, Judgement, Measured
from nsysflow.compare.statistics import RUNS_NEEDED

SCHEMA: Final = 1
"""Additions to the document keep it, a change of meaning raises it."""


def check_json(judged: Sequence[Judgement], captures: Sequence[Capture]) -> str:
    """The document: the outcome, and a budget per line, the worst first."""
    head = {
        "schema": SCHEMA,
        "tool": {"name": "nsysflow check", "version": nsysflow.__version__},
        "captures": [capture.name for capture in captures],
        "outcome": judged[0].verdict,
    }
    about = ",\n".join(f"{_text(name)}: {_text(value)}" for name, value in head.items())
    budgets = ",\n".join(_text(_budget(budget)) for budget in judged)
    return f'{{\n{about},\n"budgets": [\n{budgets}\n]\n}}'


def _budget(judged: Judgement) -> dict[str, Any]:
    """A budget; times in ns, shares in percent."""
    held: dict[str, Any] = {
        "budget": judged.budget.text,
        "name": judged.budget.name,
        "verdict": judged.verdict,
        "lost_at": [
            {"source": culprit.source, "what": culprit.what} for culprit in judged.culprits
        ],
    }
    measured = judged.measured
    if measured is None:
        return held | {"found_in": judged.found_in}
    return held | {
        "unit": measured.unit,
        "value": measured.value,
        "low": _finite(measured.low),
        "high": _finite(measured.high),
        "limit": measured.most,
        "factor_of_baseline": measured.factor,
        "margin": measured.most - measured.value,
        "counted": measured.counted,
        "needed": measured.needed,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


MOST: Final[dict[Literal["step", "run"], int]] = {"step": 10_000, "run": 50}
"""Nobody records more to judge a change."""


def value_text(value: float, unit: Unit) -> str:
    """A figure as people read it: `3.85 ms`, `4.4 %`, `589`."""
    if unit == "ns":
        return duration(round(value))
    if unit == "pct":
        return percent(value) if value else "0 %"
    return number(int(value)) if value == int(value) else significant(value)


def measured_text(judged: Judgement, captures: int) -> str:
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
    low, high = (value_text(end, measured.unit) for end in (measured.low, measured.high))
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


def verdict_text(judged: Judgement) -> str:
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


def sentence(judged: Judgement, captures: int) -> str:
    """All of it, for an annotation or a test's message."""
    said = [measured_text(judged, captures)]
    if judged.measured is not None:
        interval = interval_text(judged.measured)
        said[0] += f" ({interval})" * bool(interval)
        said += [f"limit {limit_text(judged.measured)}", margin_text(judged.measured)]
    return f"{', '.join(said)}; {verdict_text(judged)}"


def outcome(judged: list[Judgement]) -> str:
    """What became of all budgets, in a line."""
    crossed = sum(row.verdict == "crossed" for row in judged)
    noisy = sum(row.verdict == "too noisy" for row in judged)
    of_all = f"of {len(judged)} budget{'s' * (len(judged) != 1)}"
    if crossed:
        return f"crossed: {crossed} {of_all}" + f"; too noisy to judge: {noisy}" * bool(noisy)
    if noisy:
        return f"too noisy to judge: {noisy} {of_all}; none is crossed"
    return f"within: {len(judged)} {of_all}"


_HEADS: Final = ("budget", "measured", "interval (95 %)", "limit", "margin", "verdict")


def page(
    judged: Sequence[Judgement], captures: Sequence[Capture], *, width: int = 110
) -> Iterator[str]:
    """The page, line by line.

    Args:
        judged: the budgets, the worst first.
        captures: what was judged.
        width: columns of a line.
    """
    yield from map(printable, _lines(judged, captures, width))


def _lines(judged: Sequence[Judgement], captures: Sequence[Capture], width: int) -> Iterator[str]:
    yield from wrap(
        printable(_about(captures)), width, subsequent_indent="  ", break_on_hyphens=False
    )
    yield ""
    yield from _table([_HEADS, *(_row(row, len(captures)) for row in judged)], width)
    yield ""
    where = [*_where(judged)]
    if where:
        yield from where
        yield ""
    if len(captures) < RUNS_NEEDED and any(row.measured for row in judged):
        hint = "hint: runs differ by more than steps do; give three captures: nsysflow check A B C"
        yield from wrap(hint, width, subsequent_indent="  ")
    yield outcome([*judged])


def _about(captures: Sequence[Capture]) -> str:
    """What was judged: the captures, their GPU and how many steps."""
    names = ", ".join(capture.name for capture in captures)
    tracks = [track for capture in captures for track in capture.tracks if track.has_steps]
    if not tracks:
        return names
    ranks = len(ranks_of(captures[0]))
    gpu = tracks[0].gpu or "unknown GPU"
    steps = [len(ranks_of(capture)[0].steps) for capture in captures if _has_steps(capture)]
    counted = f"{' + '.join(map(str, steps))} step{'s' * (steps != [1])}"
    slowest = " of the slowest rank" if ranks > 1 else ""
    return f"{names} · {f'{ranks} x ' if ranks > 1 else ''}{gpu} · {counted}{slowest}"


def _has_steps(capture: Capture) -> bool:
    return any(track.has_steps for track in capture.tracks)


def _row(judged: Judgement, captures: int) -> tuple[str, ...]:
    measured = judged.measured
    return (
        judged.budget.text,
        measured_text(judged, captures),
        interval_text(measured),
        limit_text(measured),
        margin_text(measured),
        verdict_text(judged),
    )


def _table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Rows in columns, without a column that is empty; each on two lines where one is too long."""
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    for row in zip(*columns, strict=True):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        if fits:
            yield "  ".join(cells).rstrip()
        else:  # what was measured on one line, how it was judged below
            judged = f"    {'  '.join(cells[3:])}".rstrip()
            yield "  ".join(cells[:3]).rstrip()
            yield from wrap(judged, width, subsequent_indent="      ")


def _where(judged: Sequence[Judgement]) -> Iterator[str]:
    """Where most of it is lost, of the budgets that are not kept; those with the same places
    together."""
    together: dict[tuple[Culprit, ...], list[Judgement]] = {}
    for row in judged:
        if row.culprits and row.verdict != "within":
            together.setdefault(row.culprits, []).append(row)
    for culprits, alike in together.items():
        names = ", ".join(row.budget.name for row in alike)
        yield f"{names}: most idle time" if alike[0].measured else f"{names}:"
        yield from (f"  {culprit.what}" for culprit in culprits)


def annotations(
    judged: Sequence[Judgement], captures: int, find: Callable[[str], str | None]
) -> Iterator[str]:
    """A command per budget that is not kept: an error if crossed, a warning if too noisy.

    Args:
        judged: the budgets.
        captures: how many were judged.
        find: the file of the repository that a report names; None without one.
    """
    for row in judged:
        if row.verdict == "within":
            continue
        kind = "error" if row.verdict == "crossed" else "warning"
        properties = _place(row.culprits, find) | {"title": f"nsysflow check: {row.budget.text}"}
        shown = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
        text = "\n".join([sentence(row, captures), *(culprit.what for culprit in row.culprits)])
        yield printable(f"::{kind} {shown}::{_data(text)}")


def _place(culprits: Sequence[Culprit], find: Callable[[str], str | None]) -> dict[str, str]:
    """The file and line of an annotation; empty where the repository has no such file."""
    for culprit in culprits:
        if culprit.line is not None:
            file = find(culprit.line.file)
            return {} if file is None else {"file": file, "line": str(culprit.line.number)}
    return {}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


_NOT_XML: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold, not even escaped."""

_ELEMENT: Final = {"crossed": "failure", "too noisy": "error"}


def junit_xml(judged: Sequence[Judgement], captures: Sequence[Capture]) -> str:
    """The file's text."""
    verdicts = [row.verdict for row in judged]
    counts = {
        "tests": str(len(judged)),
        "failures": str(verdicts.count("crossed")),
        "errors": str(verdicts.count("too noisy")),
    }
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {"name": "nsysflow check", **counts})
    where = _clean(", ".join(capture.name for capture in captures))
    for row in judged:
        case = ET.SubElement(suite, "testcase", name=_clean(row.budget.text), classname=where)
        if row.verdict == "within":
            continue
        said = _clean(sentence(row, len(captures)))
        failed = ET.SubElement(case, _ELEMENT[row.verdict], type=row.verdict, message=said)
        failed.text = _clean("\n".join(culprit.what for culprit in row.culprits))
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
