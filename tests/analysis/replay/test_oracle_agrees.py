"""The replay and the oracle, which is written from spec §14, agree to the ns."""

import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes.declared import KINDS
from tests.analysis.replay.replays import replayed, without
from tests.oracle.export import read_export
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.replay import Replay
from tests.reports import DATA, sqlite_report

SAMPLES = ("nan_check-sync", "alloc_churn-empty_cache", "h2d-pageable", "overlap-side_stream")
"""Without recorded events, and small: the oracle takes the square of their size."""

PROGRAMS = (
    "alloc-009",
    "queue_full-018",
    "two_streams-015",
    "two_threads-014",
    "autograd-035",
    "mixture-034",
)


@cache
def plain(name: str) -> PlainTrace:
    with TemporaryDirectory() as folder:
        if name in SAMPLES:
            return read_export(sqlite_report(Path(folder), name))
        with tarfile.open(DATA / "simulated.tar.xz") as archive:
            archive.extract(f"simulated/{name}.sqlite", folder, filter="data")
        return read_export(Path(folder) / "simulated" / f"{name}.sqlite")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*SAMPLES, *PROGRAMS])
def test_the_oracle_agrees(name: str, kind: str) -> None:
    timeline = nsysflow.analyze(to_trace(plain(name)), Options()).timeline
    ends = replayed(timeline, without(kind)).ops["end_ns"].to_list()
    assert Replay(plain(name)).ends_without(KINDS[kind]) == ends
