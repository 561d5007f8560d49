"""The idle flame graph as a file for speedscope.app."""

import json
from typing import Any, Final

import polars as pl

import nsysflow
from nsysflow.report.flamegraph.boxes import Box, Place, boxes

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


def speedscope(idle_stacks: pl.DataFrame, name: str) -> str:
    """The document: a profile for each report, whose weights are idle ns.

    Args:
        idle_stacks: `IDLE_STACKS`.
        name: the document's name.
    """
    frames: dict[tuple[Place, int | None], int] = {}
    profiles = [
        _profile(str(report), boxes(rows), frames)
        for (report,), rows in idle_stacks.group_by("report", maintain_order=True)
    ]
    document = {
        "$schema": SCHEMA,
        "name": name,
        "exporter": f"nsysflow {nsysflow.__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(*key) for key in frames]},
        "profiles": profiles,
    }
    return json.dumps(document, ensure_ascii=False) + "\n"


def _profile(name: str, root: Box, frames: dict[tuple[Place, int | None], int]) -> dict[str, Any]:
    """A profile of one report, which adds its frames to those of the document."""
    samples, weights = [], []
    waiting: list[tuple[Box, list[int]]] = [(root, [])]
    while waiting:
        box, above = waiting.pop()
        own_ns = box.ns - sum(each.ns for each in box.children.values())
        if own_ns:
            samples.append(above)
            weights.append(own_ns)
        for child in reversed(box.widest_first):
            index = frames.setdefault((child.place, child.line), len(frames))
            waiting.append((child, [*above, index]))
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": root.ns,
        "samples": samples,
        "weights": weights,
    }


def _frame(place: Place, line: int | None) -> dict[str, Any]:
    frame: dict[str, Any] = {"name": place.name}
    if place.file:
        frame["file"] = place.file
    if line is not None:
        frame["line"] = line
    return frame
