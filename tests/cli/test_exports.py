"""`nsysflow analyze` with a file beside the page: `--sarif` and `--perfetto`."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from tests.report.perfetto.reader import read_trace
from tests.report.sarif import read
from tests.reports import SAMPLES

Analyze = Callable[..., Result]


@pytest.fixture
def analyze(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Analyze:
    """Runs the command in an empty folder on a report in it."""
    shutil.copy(SAMPLES / "nan_check-sync.sqlite.xz", tmp_path / "report.sqlite.xz")
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["analyze", "report.sqlite.xz", *words])


def test_findings_are_written_beside_the_page(analyze: Analyze) -> None:
    Path("nan_check.py").touch()
    ran = analyze("--no-files", "--sarif", "found.sarif")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("report · NVIDIA H200")
    assert ran.stderr.endswith("wrote found.sarif: 2 findings\n")
    first, last = read(Path("found.sarif").read_text(encoding="utf-8")).results
    places = [each.locations[0].physical_location for each in (first, last)]
    assert places[0].artifact_location.uri == "nan_check.py"
    assert places[0].region.start_line == 125
    assert places[1].artifact_location.uri == "report.sqlite.xz"
    assert not Path("report.sqlite.xz.nsysflow").exists()


def test_findings_are_the_same_beside_a_table(analyze: Analyze) -> None:
    assert analyze("--no-files", "--sarif", "page.sarif").exit_code == 0
    assert analyze("--table", "mfu", "--sarif", "table.sarif").exit_code == 0
    assert Path("page.sarif").read_bytes() == Path("table.sarif").read_bytes()


def test_the_report_itself_is_never_overwritten(analyze: Analyze) -> None:
    before = Path("report.sqlite.xz").read_bytes()
    ran = analyze("--no-files", "--sarif", "report.sqlite.xz")
    assert ran.exit_code == 1
    assert "is the report itself" in str(ran.exception) + ran.stderr
    assert Path("report.sqlite.xz").read_bytes() == before


def test_the_trace_is_written_beside_the_page(analyze: Analyze) -> None:
    ran = analyze("--no-files", "--perfetto", "report.pftrace")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("report · NVIDIA H200")
    read = read_trace(Path("report.pftrace").read_bytes())
    told = f"wrote report.pftrace: {len(read.slices)} slices; open it in ui.perfetto.dev\n"
    assert ran.stderr.endswith(told)
    assert any("grid" in each.arguments for each in read.slices)


def test_without_the_package_nothing_is_read_or_written(
    analyze: Analyze, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    ran = analyze("--perfetto", "report.pftrace")
    assert ran.exit_code == 1
    assert "pip install 'nsysflow[perfetto]'" in str(ran.exception) + ran.stderr
    assert [each.name for each in Path().iterdir()] == ["report.sqlite.xz"]
    assert analyze("--no-files").exit_code == 0
