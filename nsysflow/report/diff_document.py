"""A comparison as JSON and as CSV."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from nsysflow.base.names import csv_text, printable_json
from nsysflow.compare.bridge import Delta, Item, Part
from nsysflow.compare.captures import Capture
from nsysflow.compare.change import Change
from nsysflow.compare.comparison import Comparison
from nsysflow.report.diff import headline, remarks

SCHEMA_VERSION: Final = 1
"""Additions keep it, a change of meaning raises it."""


def diff_json(comparison: Comparison) -> str:
    """The comparison as one JSON document; times are ns."""
    document = diff_document(comparison)
    return printable_json(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def diff_document(comparison: Comparison) -> dict[str, Any]:
    """The same as a value."""
    return {
        "schema": SCHEMA_VERSION,
        "text": headline(comparison),
        "remarks": list(remarks(comparison)),
        "obstacles": list(comparison.obstacles),
        "base": _side(comparison.base),
        "new": _side(comparison.new),
        "change": _change(comparison.change),
        "bridge": {
            **_delta(comparison.bridge.total),
            "parts": [_part(each) for each in comparison.bridge.parts],
            "phases": _phases(comparison.bridge.phases),
        },
        "ranks": [
            {
                "base": each.base.report,
                "new": each.new.report,
                "device": each.new.device,
                "base_ns": round(each.base_ns),
                "new_ns": round(each.new_ns),
                **_change(each.change),
            }
            for each in comparison.tracks
        ],
    }


def _side(captures: Sequence[Capture]) -> list[dict[str, Any]]:
    return [
        {
            "capture": each.name,
            "report": each.slowest.report,
            "gpu": each.slowest.gpu,
            "ranks": len(each.tracks),
            "steps": len(each.slowest.steps),
            "mean_ns": each.step_ns,
        }
        for each in captures
    ]


def _change(change: Change) -> dict[str, Any]:
    # `sample_size` is called `effective` in the document
    named = (
        (name.replace("sample_size", "effective"), value) for name, value in asdict(change).items()
    )
    held = {name: _rounded(value) for name, value in named}
    return held | {"shift_pct": held["shift_pct"] if change.shift_pct == change.shift_pct else None}


def _rounded(value: object) -> object:
    return round(value, 6) if isinstance(value, float) and value == value else value


def _delta(change: Delta) -> dict[str, Any]:
    return {
        "base_ns": round(change.base_ns),
        "new_ns": round(change.new_ns),
        "change_ns": change.change_ns,
        "low_ns": None if change.low_ns is None else round(change.low_ns),
        "high_ns": None if change.high_ns is None else round(change.high_ns),
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "part": part.part,
        "kind": part.kind or None,
        **_delta(part.change),
        "phases": _phases(part.phases),
        "rows": [_thing(each) for each in part.things],
    }


def _phases(phases: dict[str, Delta]) -> list[dict[str, Any]]:
    return [{"phase": name, **_delta(each)} for name, each in phases.items()]


def _thing(thing: Item) -> dict[str, Any]:
    what = thing.what
    return {
        "status": thing.status,
        "name": what.name,
        "grid": what.grid or None,
        "phase": what.phase if what.part == "idle" else None,
        "source": what.source or None,
        "base_source": thing.base_source,
        **_delta(thing.change),
        "base_count": round(thing.base_count, 6),
        "new_count": round(thing.new_count, 6),
        "base_each_ns": None if thing.base_each_ns is None else round(thing.base_each_ns),
        "new_each_ns": None if thing.new_each_ns is None else round(thing.new_each_ns),
    }


def diff_csv(comparison: Comparison) -> str:
    """A row per kernel, copy and wait; their changes sum to that of the mean step."""
    rows = [
        {"part": part.part, "kind": part.kind, **_thing(each)}
        for part in comparison.bridge.parts
        for each in part.things
    ]
    return csv_of(rows)


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of equal columns as CSV; nothing for None."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: csv_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()}
        for row in rows
    )
    return text.getvalue()
