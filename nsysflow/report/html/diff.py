"""The page of a comparison: did it change, and why?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nsysflow.base.names import OUTSIDE
from nsysflow.compare.captures import Capture
from nsysflow.compare.comparison import Comparison
from nsysflow.report.diff import label, title
from nsysflow.report.diff_document import diff_document
from nsysflow.report.html.document import PageKind, around, json_data
from nsysflow.report.html.page import COMMON
from nsysflow.report.html.tables import ColumnShown
from nsysflow.report.one_table import head, unit_of

DIFF: Final = PageKind(
    body="diff.html",
    scripts=(
        *COMMON,
        *(f"diff/{name}.js" for name in ("bridge", "phases", "steps", "tables", "start")),
    ),
)


@dataclass(frozen=True, kw_only=True)
class DiffTable:
    """A table of things that changed.

    Attributes:
        name: its name.
        rows_of: what it holds: `operations`, `waits` or `ranks`.
        about: what a row is, a clause.
        rows_are: how to read it.
        columns: all of them.
        shown: those that people act on, most important first.
    """

    name: str
    rows_of: str
    about: str
    rows_are: str
    columns: tuple[ColumnShown, ...]
    shown: tuple[str, ...]


_DELTA: Final = {
    "change_ns": "how much longer a step takes with it; below 0: shorter",
    "low_ns": "from here on the change lies, at 95 %; empty where there are too few steps",
    "high_ns": "up to here the change lies, at 95 %",
    "base_ns": "its part of the base's mean step",
    "new_ns": "its part of the new side's mean step",
}

_THING: Final = {
    "status": "how it changed: new, gone, slower, faster, called more often, …",
    "short_name": "the kernel or copy, or the call that is blamed",
    "kind": "which part of the bridge it belongs to",
    **_DELTA,
    "base_count": "how often in a step of the base",
    "new_count": "how often in a step of the new side",
}

_OPERATION: Final = {
    **_THING,
    "name": "the same in full",
    "grid": "the kernel's grid",
    "base_each_ns": "how long each took in the base",
    "new_each_ns": "how long each takes on the new side",
}

_WAIT: Final = {
    **_THING,
    "phase": "the NVTX ranges in which the host was, joined by `/`; empty outside all ranges",
    "source": "the innermost line of your program",
    "base_source": "its line in the base, where that is another one",
}

_RANK: Final = {
    "new": "the rank's report on the new side",
    "base": "its report in the base",
    "device": "the GPU's index",
    "base_ns": "its mean step in the base",
    "new_ns": "its mean step on the new side",
    "shift_pct": "by how much the typical step got longer; below 0: shorter",
    "low_pct": "from here on the shift lies, at 95 %",
    "high_pct": "up to here the shift lies, at 95 %",
    "verdict": "whether the shift is more than noise",
}

_WORDS: Final = (
    "status",
    "name",
    "short_name",
    "kind",
    "grid",
    "phase",
    "source",
    "base_source",
    "verdict",
)


def diff_html(comparison: Comparison) -> str:
    """The page, as one HTML file."""
    head_, tail = around(DIFF, f"nsysflow: {title(comparison)}")
    contents = {
        **diff_document(comparison),
        "title": title(comparison),
        "outside": OUTSIDE,
        "labels": {f"{each.part}/{each.kind}": label(each) for each in comparison.bridge.parts},
        "steps": {"base": _steps(comparison.base), "new": _steps(comparison.new)},
        "short_names": {
            thing.what.name: thing.short_name
            for part in comparison.bridge.parts
            for thing in part.things
        },
        "tables": _tables(),
    }
    return (head_ + json_data("diff", msgspec.json.encode(contents)) + tail).decode()


def _steps(side: Sequence[Capture]) -> list[dict[str, Any]]:
    """The durations that are compared: those of each capture's slowest rank."""
    return [{"capture": each.name, "duration_ns": list(each.slowest.duration_ns)} for each in side]


def _tables() -> list[DiffTable]:
    reads = "Rows of unchanged things are left out. Times are of a mean step."
    return [
        DiffTable(
            name="kernels and copies",
            rows_of="operations",
            about="kernels, communication and copies that take another part of a step",
            rows_are=reads,
            columns=_columns(_OPERATION),
            shown=(
                *("change_ns", "status", "short_name", "kind", "base_count", "base_each_ns"),
                *("new_count", "new_each_ns", "grid"),
            ),
        ),
        DiffTable(
            name="waits",
            rows_of="waits",
            about="idle time by cause, call, line and phase, where it changed",
            rows_are=reads,
            columns=_columns(_WAIT),
            shown=(
                "change_ns",
                "status",
                "kind",
                "short_name",
                "source",
                "phase",
                "base_ns",
                "new_ns",
            ),
        ),
        DiffTable(
            name="ranks",
            rows_of="ranks",
            about="the change of each rank",
            rows_are="The bridge compares the slowest rank of each side.",
            columns=_columns(_RANK),
            shown=tuple(_RANK),
        ),
    ]


def _columns(meanings: dict[str, str]) -> tuple[ColumnShown, ...]:
    return tuple(_column(*each) for each in meanings.items())


_UNITS: Final = {"change_ns": "signed", "base_count": "times", "new_count": "times"}


def _column(name: str, meaning: str) -> ColumnShown:
    words = name in (*_WORDS, "base", "new")
    unit = _UNITS.get(name) or unit_of(name)
    return ColumnShown(
        name=name,
        head=head(name),
        key=name,
        meaning=meaning,
        kind="text" if words else "number",
        unit=unit or ("" if words or name == "device" else "number"),
    )
