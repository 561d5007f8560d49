"""The attribution against simulated programs whose true savings are known.

tests/data/simulated.tar.xz holds exports of 44 simulated programs and truth.json, which says for
each place in them what would be saved if its calls took no time (or its launches were one graph).
"""

import json
import tarfile
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.options import Options
from tests.reports import DATA

pytestmark = pytest.mark.xdist_group("simulated")

WORTH: Final = 0.02
"""Only places that save at least this share of the window are compared."""

QUIET: Final = ("deep_queue", "harmless_sync", "prefetch", "dense_then_items")
"""Classes of programs without starved windows."""


@cache
def simulated() -> tuple[dict[str, nsysflow.Analysis], dict[str, Any]]:
    """The analysis of every program, whose whole window is judged, and the true savings."""
    with TemporaryDirectory() as folder, tarfile.open(DATA / "simulated.tar.xz") as archive:
        archive.extractall(folder, filter="data")
        root = Path(folder) / "simulated"
        truth = json.loads((root / "truth.json").read_text())
        traces = {name: nsysflow.load(root / f"{name}.sqlite") for name in truth}
    return {
        name: nsysflow.analyze(trace, Options(whole=True)) for name, trace in traces.items()
    }, truth


def charged_and_saved() -> Iterator[tuple[int, int]]:
    """For each place that saves enough: the idle behind its calls, and its true saving."""
    analyses, truth = simulated()
    for name, about in truth.items():
        idle_ns = dict(analyses[name].syncs.select("start_ns", "induced_idle_ns").rows())
        for site, of in about["sites"].items():
            if of["kind"] == "stall" and of["saving"] >= WORTH * about["window"]:
                calls = (start for start, _, its_site in about["calls"] if its_site == site)
                yield sum(idle_ns.get(start, 0) for start in calls), of["saving"]


def test_the_idle_behind_a_wait_is_about_what_its_removal_saves() -> None:
    pairs = list(charged_and_saved())
    assert len(pairs) >= 30
    assert median(abs(idle - saved) / saved for idle, saved in pairs) <= 0.05
    assert abs(sum(idle for idle, _ in pairs) / sum(saved for _, saved in pairs) - 1) <= 0.12


def runs_of_launches() -> Iterator[tuple[nsysflow.Analysis, int, int]]:
    """Where short kernels were launched one by one: the analysis, start and end of each run."""
    analyses, truth = simulated()
    for name, about in truth.items():
        ops = analyses[name].timeline.ops
        for site, of in about["sites"].items():
            if of["kind"] == "graph":
                starts = iter([start for start, _, its in about["calls"] if its == site])
                for count in of["ops"]:
                    launched = [*islice(starts, count)]
                    run = ops.filter(pl.col("launch_start_ns").is_in(launched))
                    start, end = run.select(pl.min("start_ns"), pl.max("end_ns")).row(0)
                    yield analyses[name], start, end


def test_runs_of_short_launches_that_starve_the_gpu_are_listed() -> None:
    starving = covered = 0
    for analysis, start, end in runs_of_launches():
        inside = analysis.gaps.filter(pl.col("start_ns") >= start, pl.col("end_ns") <= end)
        if 2 * inside["launch_ns"].sum() < end - start:
            continue
        starving += 1
        first = pl.max_horizontal("start_ns", pl.lit(start))
        last = pl.min_horizontal("end_ns", pl.lit(end))
        listed = analysis.starved.select((last - first).clip(lower_bound=0).sum()).item()
        covered += 2 * listed >= end - start
    assert starving >= 20
    assert covered >= 0.95 * starving


def test_nothing_starves_a_program_that_keeps_its_queue_full() -> None:
    analyses, truth = simulated()
    quiet = [name for name, about in truth.items() if about["class"] in QUIET]
    assert len(quiet) >= 8
    assert {name: len(analyses[name].starved) for name in quiet} == dict.fromkeys(quiet, 0)
