"""Reports of any kind, kept and loaded again: every frame, every type, every word."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.analysis.load import dispatch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.options import Options
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import Busy, NotAReport
from nsysflow.report.tables import report_json
from nsysflow.runs import kept_frames as frames
from nsysflow.runs import loading
from nsysflow.runs.analyze import analyze_reports
from nsysflow.runs.cache import Store
from tests.analyses import few_reports
from tests.reports import DATA, PACKED, parquetdir_report, sqlite_report
from tests.runs.keeping import assert_same, forbid_reading, kept_in, load


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    return kept_in(tmp_path / "cache", monkeypatch)


@pytest.mark.usefixtures("store")
def test_the_second_time_the_report_is_not_read_and_has_the_name_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = sqlite_report(tmp_path, "h200-train")
    first = load(report)
    forbid_reading(monkeypatch)
    assert_same(load(report), first)
    assert load(report.rename(tmp_path / "moved.sqlite")).report == "moved"


@pytest.mark.usefixtures("store")
def test_a_report_that_changed_is_read_again_or_refused(tmp_path: Path) -> None:
    report = sqlite_report(tmp_path, "h200-train")
    load(report)
    report.write_bytes(sqlite_report(tmp_path, "h200-jax").read_bytes())
    assert_same(load(report), replace(load(PACKED["h200-jax"]), report="h200-train"))
    journal = report.with_name(report.name + "-wal")
    journal.write_text("changes")
    with pytest.raises(Busy):
        load(report)
    journal.unlink()
    report.unlink()
    with pytest.raises(NotAReport):
        load(report)


def test_a_fast_report_is_not_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "WORTH_S", 1000)
    load(PACKED["h200-ddp-rank0"])
    assert store.held() == []


def test_a_note_that_names_files_is_made_anew(store: Store) -> None:
    trace = load(PACKED["h200-backtrace"])
    names_files = any("to export them" in note.text for note in trace.notes)
    assert names_files == (store.held() == [])


def test_every_loader_leaves_out_the_shapes_that_were_not_asked_for() -> None:
    shapes = loading.load(DATA / "h200-kineto.pt.trace.json.gz", shapes="grid").shapes
    assert shapes["grid_x"].null_count() == 0 < len(shapes)
    assert shapes["registers"].null_count() == len(shapes)


@pytest.mark.parametrize("name", ["h200-ddp-rank0", "nan_check-sync"])
def test_results_from_the_cache_are_equal_to_the_byte(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def document() -> str:
        return report_json(analyze_reports([PACKED[name]], Options(), tables=("kernels",)))

    expected = document()
    kept_in(tmp_path, monkeypatch)
    load(PACKED[name])
    forbid_reading(monkeypatch)
    assert document() == expected


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
    assert_kept(dispatch.load(PACKED[name]), tmp_path)


def test_traces_of_other_kinds_come_back_too(tmp_path: Path) -> None:
    for report in (DATA / "h200-kineto.pt.trace.json.gz", parquetdir_report(tmp_path)):
        assert_kept(dispatch.load(report), tmp_path / "kept")


@pytest.mark.parametrize("shapes", [False, "grid"])
def test_a_trace_with_all_shapes_serves_for_less(shapes: Shapes, tmp_path: Path) -> None:
    report = PACKED["h200-train"]
    found = kept(dispatch.load(report), tmp_path, shapes)
    assert found is not None
    assert_same(found, dispatch.load(report, shapes=shapes))


def test_one_wrong_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    trace = dispatch.load(PACKED["h200-ddp-rank0"])
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
    kept(dispatch.load(PACKED["h200-ddp-rank0"]), tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    assert Store(tmp_path).get(KEY, True) is None
    assert list(tmp_path.iterdir()) == []
