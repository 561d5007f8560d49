import shutil
import sys
from pathlib import Path

import pytest

from nsysflow.runs import analyze as runs_analyze
from tests.cli.running import refused, run
from tests.disks import names
from tests.report.handmade import Handmade, Results
from tests.report.perfetto.reader import read_trace
from tests.report.test_flamegraph import ROWS, idle_stacks
from tests.report.test_sarif import read
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

SYNC, ASYNC = SAMPLES / "nan_check-sync.sqlite.xz", SAMPLES / "nan_check-async.sqlite.xz"
ANALYZE = ("analyze", "report.sqlite.xz", "--no-files")
DIFF = ("diff", SYNC, ASYNC)


@pytest.fixture(autouse=True)
def here(here: Path) -> Path:
    """The working folder, with a report."""
    shutil.copy(SYNC, here / "report.sqlite.xz")
    return here


def test_findings_are_written_beside_the_page_or_a_table(here: Path) -> None:
    Path("nan_check.py").touch()
    ran = run(*ANALYZE, "--sarif", "found.sarif")
    assert ran.stdout.startswith("report · NVIDIA H200")
    assert ran.stderr.endswith("wrote found.sarif: 2 findings\n")
    results = read(Path("found.sarif").read_text(encoding="utf-8"))["results"]
    first, last = (each["locations"][0]["physicalLocation"] for each in results)
    assert first["artifactLocation"]["uri"] == "nan_check.py"
    assert first["region"]["startLine"] == 125
    assert last["artifactLocation"]["uri"] == "report.sqlite.xz"
    run("analyze", "report.sqlite.xz", "--table", "mfu", "--sarif", "table.sarif")
    assert Path("table.sarif").read_bytes() == Path("found.sarif").read_bytes()
    assert names(here) == ["found.sarif", "nan_check.py", "report.sqlite.xz", "table.sarif"]


def test_the_trace_is_written_beside_the_page() -> None:
    ran = run(*ANALYZE, "--perfetto", "report.pftrace")
    assert ran.stdout.startswith("report · NVIDIA H200")
    read = read_trace(Path("report.pftrace").read_bytes())
    told = f"wrote report.pftrace: {len(read.slices)} slices; open it in ui.perfetto.dev\n"
    assert ran.stderr.endswith(told)
    assert any("grid" in each.arguments for each in read.slices)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ((*ANALYZE, "--perfetto", "report.pftrace"), "perfetto"),
        ((*ANALYZE, "--figures", "figures"), "figures"),
        ((*DIFF, "--figures", "figures"), "figures"),
    ],
)
def test_without_the_package_the_error_says_what_to_install_before_any_work(
    here: Path, words: tuple[str | Path, ...], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    monkeypatch.setattr("nsysflow.cli.exports.find_spec", lambda _name: None)
    assert f"pip install 'nsysflow[{extra}]'" in refused(*words, code=1)
    assert names(here) == ["report.sqlite.xz"]


def test_figures_are_drawn_and_it_is_said_which_and_which_not() -> None:
    ran = run(*ANALYZE, "--figures", "figures")
    assert ran.stdout.startswith("report · NVIDIA H200")
    assert "wrote figures: breakdown, idle-over-steps, gap-histogram, phases, " in ran.stderr
    assert ran.stderr.endswith("\nnot drawn: ranks (no steps of several ranks)\n")
    assert len(names(Path("figures"))) == 10


def test_diff_draws_the_bridge_of_two_sides() -> None:
    assert run(*DIFF, "--figures", "a").stderr.endswith("wrote a: bridge, as SVG and PNG\n")
    assert names(Path("a")) == ["bridge.png", "bridge.svg"]


@pytest.mark.parametrize("words", [ANALYZE, DIFF])
def test_an_unfit_folder_is_refused_before_any_work(words: tuple[str | Path, ...]) -> None:
    Path("figures").write_text("mine", encoding="utf-8")
    said = refused(*words, "--figures", "figures", code=1)
    assert "is a file. Name a folder with --figures DIR" in said


def test_html_writes_the_page_beside_the_other_files_and_it_goes_with_its_tables() -> None:
    words = ("analyze", "report.sqlite.xz", "-o", "out")
    assert "wrote out: report.html, summary.md" in run(*words, "--html").stderr
    page = Path("out/report.html")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    run(*words)
    assert not page.exists()


@pytest.fixture
def samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report has Python samples."""
    results = Results([Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})])
    monkeypatch.setattr(runs_analyze, "analyze_reports", lambda *_args, **_asked: results)


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize(
    ("name", "start", "reader"),
    [("idle.svg", "<svg ", "a browser"), ("idle.json", '{"$schema"', "speedscope.app")],
)
def test_a_flame_graph_is_written_alone(here: Path, name: str, start: str, reader: str) -> None:
    ran = run("analyze", "report.sqlite.xz", "--flamegraph", name)
    assert (ran.stdout, ran.stderr) == ("", f"wrote {name}: open it in {reader}\n")
    assert names(here) == [name, "report.sqlite.xz"]
    assert Path(name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["idle.png"], 2, "type --flamegraph idle.svg for a browser"),
        (["idle.svg", "--json"], 2, "cannot be combined"),
        (["missing/idle.svg"], 1, "cannot write missing/idle.svg"),
    ],
)
def test_a_flame_graph_that_cannot_be_written_is_refused(
    here: Path, words: list[str], code: int, said: str
) -> None:
    assert said in refused("analyze", "report.sqlite.xz", "--flamegraph", *words, code=code)
    assert names(here) == ["report.sqlite.xz"]
