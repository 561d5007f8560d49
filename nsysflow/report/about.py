"""What pictures say of the run that they show, in small print and beside their axes."""

from collections.abc import Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.short_repr import gpu_names
from nsysflow.base.names import some_of
from nsysflow.report.blocks.steps import steps_sentence
from nsysflow.report.layout import shorten_middle
from nsysflow.report.results import Results, gpu_name

_LETTERS: Final = 20
"""So long a name of a report leaves the axes enough room."""

_NAMED: Final = 3
"""How many reports have room in the small print."""


def about_run(results: Results, *more: str) -> str:
    """The reports, their GPUs, what is selected and how many steps there are, as on the page.

    Args:
        results: the whole run.
        more: what else the reader must know.
    """
    only = f"only {results.selection}" if results.selection else ""
    gpus = gpu_names(names_of_gpus(results))
    parts = [
        some_of(results.every_report, _NAMED),
        gpus,
        only,
        steps_sentence(results.typical),
        *more,
    ]
    return " · ".join(filter(None, parts))


def names_of_gpus(results: Results) -> pl.Series:
    """The name of each GPU of the run, also of ranks that are not looked at whole."""
    if results.digests is None:
        return results.table("accounting")["name"]
    return pl.concat([each.gpus["name"] for each in results.digests])


def gpu_label(results: Results, report: str, device: int) -> str:
    """A GPU as axes name it."""
    short = shorten_middle(report, _LETTERS)
    return gpu_name(short, device, several=len(results.every_report) > 1)


def track_labels(results: Results, tracks: Sequence[tuple[str, int, int]]) -> list[str]:
    """The processes and GPUs as axes name them: by the GPU, unless several processes share it."""
    names = [gpu_label(results, report, device) for report, _, device in tracks]
    return [
        name if names.count(name) == 1 else f"{name}, process {process}"
        for name, (_, process, _) in zip(names, tracks, strict=True)
    ]


def time_label(results: Results) -> str:
    """What an axis of times shows: of a step, or of the whole window."""
    return "time per step" if results.judged.of_steps else "time in the window"
