"""A kept trace is the loaded one: every frame, every type, every word."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.trace import Trace
from nsysflow.runs import kept_frames as frames
from nsysflow.runs.cache import Store
from tests.analyses import few_reports
from tests.reports import DATA, PACKED, parquetdir_report
from tests.runs.keeping import assert_same

KEY = "0" * 32


def kept(trace: Trace, folder: Path, shapes: Shapes = True) -> Trace | None:
    """A trace, kept and looked up."""
    said = frames.about(trace, folder / "report.sqlite")
    assert said is not None
    store = Store(folder)
    store.put(KEY, True, frames.frames_of(trace), said)
    found = store.get(KEY, shapes)
    return None if found is None else replace(found, report=trace.report)


def assert_kept(trace: Trace, folder: Path) -> None:
    found = kept(trace, folder)
    assert found is not None
    assert_same(found, trace)


@few_reports
def test_what_comes_back_is_what_was_loaded(name: str, tmp_path: Path) -> None:
    assert_kept(load(PACKED[name]), tmp_path)


def test_traces_of_other_kinds_come_back_too(tmp_path: Path) -> None:
    for report in (DATA / "h200-kineto.pt.trace.json.gz", parquetdir_report(tmp_path)):
        assert_kept(load(report), tmp_path / "kept")


@pytest.mark.parametrize("shapes", [False, "grid"])
def test_a_trace_with_all_shapes_serves_for_less(shapes: Shapes, tmp_path: Path) -> None:
    report = PACKED["h200-train"]
    found = kept(load(report), tmp_path, shapes)
    assert found is not None
    assert_same(found, load(report, shapes=shapes))


def test_one_wrong_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    trace = load(PACKED["h200-ddp-rank0"])
    assert kept(trace, tmp_path) is not None
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    draw = random.Random(18)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        file.write_bytes(damaged)
        found = Store(tmp_path).get(KEY, True)
        if found is None:
            refused += 1
        else:
            assert_same(replace(found, report=trace.report), trace)
    assert refused > 40


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_file_that_was_cut_is_removed(share: float, tmp_path: Path) -> None:
    kept(load(PACKED["h200-ddp-rank0"]), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    assert Store(tmp_path).get(KEY, True) is None
    assert list(tmp_path.iterdir()) == []
