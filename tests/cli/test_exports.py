"""`nsysflow analyze` with a file beside the page: `--sarif` and `--perfetto`."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from nsysflow.runs import analyze as runs_analyze
from tests.report.handmade import Handmade, Results
from tests.report.perfetto.reader import read_trace
from tests.report.sarif import read
from tests.report.test_flamegraph import ROWS, idle_stacks
from tests.reports import DATA, SAMPLES

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


REPORT = str(SAMPLES / "nan_check-sync.sqlite.xz")
OTHER = str(SAMPLES / "nan_check-async.sqlite.xz")

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, words)


def test_analyze_prints_the_page_and_says_what_was_drawn_and_what_not(run: Run) -> None:
    ran = run("analyze", REPORT, "--no-files", "--figures", "figures")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("nan_check-sync · NVIDIA H200")
    assert ran.stderr.endswith(
        "wrote figures: breakdown, idle-over-steps, gap-histogram, phases, kernel-classes, as SVG"
        " and PNG\nnot drawn: ranks (no steps of several ranks)\n"
    )
    assert len([*Path("figures").iterdir()]) == 10


def test_diff_draws_the_bridge(run: Run) -> None:
    ran = run("diff", REPORT, OTHER, "--figures", "figures")
    assert ran.exit_code == 0
    assert ran.stderr.endswith("wrote figures: bridge, as SVG and PNG\n")
    assert sorted(each.name for each in Path("figures").iterdir()) == ["bridge.png", "bridge.svg"]


def test_a_comparison_over_time_has_no_bridge(run: Run) -> None:
    third = str(SAMPLES / "nan_check-sync-metrics.sqlite.xz")
    ran = run("diff", REPORT, OTHER, third, "--figures", "figures")
    assert ran.exit_code == 2
    assert "--figures shows two sides" in ran.stderr


@pytest.mark.parametrize("words", [("analyze", REPORT, "--no-files"), ("diff", REPORT, OTHER)])
def test_a_folder_that_cannot_take_them_is_refused_before_any_work(
    run: Run, words: tuple[str, ...]
) -> None:
    Path("figures").write_text("mine", encoding="utf-8")
    ran = run(*words, "--figures", "figures")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "is a file. Name a folder with --figures DIR" in ran.stderr


@pytest.mark.parametrize("words", [("analyze", REPORT, "--no-files"), ("diff", REPORT, OTHER)])
def test_without_matplotlib_the_error_says_what_to_install(
    run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nsysflow.cli.exports.find_spec", lambda _name: None)
    ran = run(*words, "--figures", "figures")
    assert ran.exit_code == 1
    assert "pip install 'nsysflow[figures]'" in ran.stderr
    assert not Path("figures").exists()


HTML_REPORT = str(SAMPLES / "h2d-pinned.sqlite.xz")


def test_html_writes_the_page_beside_the_other_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = CliRunner().invoke(main, ["analyze", HTML_REPORT, "--html", "-o", str(out)])
    assert done.exit_code == 0
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert f"wrote {out}: report.html, summary.md" in done.stderr


def test_a_page_of_an_earlier_analysis_goes_with_its_tables(tmp_path: Path) -> None:
    words = ["analyze", HTML_REPORT, "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(main, [*words, "--html"]).exit_code == 0
    assert CliRunner().invoke(main, words).exit_code == 0
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "instead"),
    [(["--no-files"], "leave out --no-files"), (["--table", "gaps"], "name a folder with -o DIR")],
)
def test_html_without_files_says_what_to_type(words: list[str], instead: str) -> None:
    done = CliRunner().invoke(main, ["analyze", HTML_REPORT, "--html", *words])
    assert done.exit_code == 2
    assert instead in " ".join(done.stderr.split())


FLAMEGRAPH_REPORT = str(DATA / "h200-nvtx-domain.sqlite.xz")


@pytest.fixture
def flamegraph_analyze(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Analyze:
    """Runs the command in an empty folder on a report with samples."""
    run = Results([Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})])
    monkeypatch.setattr(runs_analyze, "analyze_reports", lambda *_args, **_asked: run)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["analyze", FLAMEGRAPH_REPORT, *words])


@pytest.mark.parametrize(
    ("name", "start", "reader"),
    [("idle.svg", "<svg ", "a browser"), ("idle.json", '{"$schema"', "speedscope.app")],
)
def test_the_file_is_written_and_nothing_else(
    flamegraph_analyze: Analyze, name: str, start: str, reader: str
) -> None:
    ran = flamegraph_analyze("--flamegraph", name)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.endswith(f"wrote {name}: open it in {reader}\n")
    assert [each.name for each in Path().iterdir()] == [name]
    assert Path(name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("name", ["idle.png", "idle", "-", "svg", "idle.SVG"])
def test_another_ending_is_refused_with_what_to_type(
    flamegraph_analyze: Analyze, name: str
) -> None:
    ran = flamegraph_analyze("--flamegraph", name)
    assert ran.exit_code == 2
    assert "type --flamegraph idle.svg for a browser" in ran.stderr
    assert not [*Path().iterdir()]


@pytest.mark.parametrize("other", [["--json"], ["--table", "kernels"], ["--full"]])
def test_one_thing_is_given_at_a_time(flamegraph_analyze: Analyze, other: list[str]) -> None:
    ran = flamegraph_analyze("--flamegraph", "idle.svg", *other)
    assert ran.exit_code == 2
    assert "cannot be combined" in ran.stderr


def test_a_file_that_cannot_be_written_is_an_error(flamegraph_analyze: Analyze) -> None:
    ran = flamegraph_analyze("--flamegraph", "missing/idle.svg")
    assert ran.exit_code == 1
    assert "cannot write missing/idle.svg" in str(ran.exception) + ran.stderr


@pytest.mark.usefixtures("tmp_path")
def test_a_report_without_samples_says_how_to_record_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["analyze", FLAMEGRAPH_REPORT, "--flamegraph", "idle.svg"])
    assert ran.exit_code != 0
    assert "nsysflow profile --sample-python 1000 -- COMMAND" in str(ran.exception) + ran.stderr
    assert not [*tmp_path.iterdir()]
