"""The name of a path in tables, and the report that a run's folder stands for."""

import shutil
from pathlib import Path

import pytest

from nsysflow.analysis.load import load
from nsysflow.base.names import report_name
from tests.exports import write_export
from tests.reports import DATA


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("runs/h200-train.sqlite.xz", "h200-train"),
        ("h200-train.sqlite", "h200-train"),
        ("a.b.sqlite.zst", "a.b"),
        ("h200-kineto.pt.trace.json.gz", "h200-kineto"),
        ("host_1.1700000000.pt.trace.json", "host_1.1700000000"),
        ("trace.json", "trace"),
        ("report.nsys-rep", "report"),
        ("export/", "export"),
        ("no-suffix", "no-suffix"),
        (".sqlite", ".sqlite"),
    ],
)
def test_a_report_is_named_after_its_file(path: str, name: str) -> None:
    assert report_name(Path(path)) == name


def test_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run-7"
    folder.mkdir()
    write_export(folder / "report.sqlite", kernels=[{}])
    monkeypatch.chdir(folder)
    assert load(".").report == "run-7"


def test_the_folder_of_a_run_is_read_as_its_report(tmp_path: Path) -> None:
    shutil.copy(DATA / "synthetic-1.sqlite.xz", tmp_path / "report.sqlite.xz")
    assert load(tmp_path).ops.height > 0
    write_export(tmp_path / "report.sqlite", kernels=[{}])
    assert load(str(tmp_path)).ops.height == 1
