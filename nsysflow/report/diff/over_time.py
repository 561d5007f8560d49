"""The table over time: a line per capture."""

from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from nsysflow.base.units import duration, signed
from nsysflow.compare.comparison import Comparison, Stage
from nsysflow.report.diff.blocks import label
from nsysflow.report.diff.sentences import signed_pct
from nsysflow.report.layout import Block, figure, words

_WORDS: Final = {
    "better": "faster",
    "worse": "slower",
    "no significant change": "no significant change",
    "not enough steps": "not enough steps",
}


def table(stages: Sequence[Stage]) -> Block:
    """A row per capture."""
    return Block(
        title="Steps over time",
        caption="captures of an unchanged program differ, too",
        columns=(
            words("capture"),
            figure("steps"),
            figure("median"),
            figure("since first"),
            figure("since last"),
            words("verdict since last"),
            words("mostly"),
        ),
        rows=tuple(_cells(stage) for stage in stages),
    )


def rows(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "capture": stage.capture.name,
            "steps": len(stage.capture.slowest.steps),
            "median_ns": _median_ns(stage),
            "mean_ns": round(stage.capture.slowest.mean_ns),
            "since_first_pct": _shift(stage.since_first),
            "verdict_since_first": stage.since_first and stage.since_first.change.verdict,
            "since_last_pct": _shift(stage.since_last),
            "verdict_since_last": stage.since_last and stage.since_last.change.verdict,
        }
        for stage in stages
    ]


def _cells(stage: Stage) -> tuple[str, ...]:
    first, last = stage.since_first, stage.since_last
    return (
        stage.capture.name,
        str(len(stage.capture.slowest.steps)),
        duration(_median_ns(stage)),
        signed_pct(first.change.shift_pct) if first else "",
        signed_pct(last.change.shift_pct) if last else "",
        _WORDS[last.change.verdict] if last else "",
        _mostly(last) if last else "",
    )


def _median_ns(stage: Stage) -> int:
    return round(median(stage.capture.slowest.duration_ns))


def _shift(found: Comparison | None) -> float | None:
    return None if found is None else round(found.change.shift_pct, 6)


def _mostly(found: Comparison) -> str:
    """The part that changed most, in words; empty if nothing changed."""
    first = next(iter(found.bridge.parts), None)
    if first is None or not first.change.change_ns:
        return ""
    return f"{signed(first.change.change_ns)} {label(first)}"
