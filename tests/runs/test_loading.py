"""Reports of any kind, and how much memory they take."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.analysis.options import Options
from nsysflow.base.errors import Busy, NotAReport
from nsysflow.report.tables import report_json
from nsysflow.runs import loading
from nsysflow.runs.analyze import analyze_reports
from nsysflow.runs.cache import Store
from tests.reports import DATA, PACKED, sqlite_report
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
def test_a_report_that_changed_is_read_again_and_one_being_written_or_gone_refused(
    tmp_path: Path,
) -> None:
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


def test_a_report_that_loads_fast_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
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
