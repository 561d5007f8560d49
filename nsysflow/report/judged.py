"""The part `judged` of report.json: what the verdict, the GPU time and the phases are of."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Final

import polars as pl

from nsysflow.report.phase_tree import phase_tree
from nsysflow.report.results import Results

PHASES: Final = 500
"""Nobody reads a tree with more phases; the table has all of them."""

Row = dict[str, Any]


def judged_json(results: Results, devices_of: Callable[[pl.DataFrame], Sequence[Row]]) -> str:
    """The judged steps, or the whole window where none are judged: each GPU with its number of
    steps, then the tree of phases over all GPUs. Figures are sums over the steps.

    Args:
        results: the run.
        devices_of: makes the rows of `devices` from an accounting.
    """
    judged, found = results.judged, results.found
    devices = [
        {**row, "steps": judged.steps_on(row["report"], row["device"])}
        for row in devices_of(judged.table("accounting"))
    ]
    phases, left_out = phase_tree(judged, PHASES)
    held = {
        "of_steps": judged.of_steps,
        "steps": judged.step_count,
        "step_ns": found.step_ns,
        "window_ns": sum(row["window_ns"] for row in devices),
        "devices": devices,
        "phases": [{**asdict(each), "time_ns": each.time_ns} for each in phases],
        "phases_left_out": left_out,
    }
    return json.dumps(held, ensure_ascii=False, allow_nan=False)
