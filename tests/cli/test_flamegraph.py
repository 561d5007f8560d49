"""`nsysflow analyze --flamegraph`."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.main import main
from nsysflow.runs import analyze as runs_analyze
from tests.report.handmade import Handmade, Results
from tests.report.test_flamegraph import ROWS, idle_stacks
from tests.reports import DATA

REPORT = str(DATA / "h200-nvtx-domain.sqlite.xz")

Analyze = Callable[..., Result]


@pytest.fixture
def analyze(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Analyze:
    """Runs the command in an empty folder on a report with samples."""
    run = Results([Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})])
    monkeypatch.setattr(runs_analyze, "analyze_reports", lambda *_args, **_asked: run)
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["analyze", REPORT, *words])


@pytest.mark.parametrize(
    ("name", "start", "reader"),
    [("idle.svg", "<svg ", "a browser"), ("idle.json", '{"$schema"', "speedscope.app")],
)
def test_the_file_is_written_and_nothing_else(
    analyze: Analyze, name: str, start: str, reader: str
) -> None:
    ran = analyze("--flamegraph", name)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.endswith(f"wrote {name}: open it in {reader}\n")
    assert [each.name for each in Path().iterdir()] == [name]
    assert Path(name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("name", ["idle.png", "idle", "-", "svg", "idle.SVG"])
def test_another_ending_is_refused_with_what_to_type(analyze: Analyze, name: str) -> None:
    ran = analyze("--flamegraph", name)
    assert ran.exit_code == 2
    assert "type --flamegraph idle.svg for a browser" in ran.stderr
    assert not [*Path().iterdir()]


@pytest.mark.parametrize("other", [["--json"], ["--table", "kernels"], ["--full"]])
def test_one_thing_is_given_at_a_time(analyze: Analyze, other: list[str]) -> None:
    ran = analyze("--flamegraph", "idle.svg", *other)
    assert ran.exit_code == 2
    assert "cannot be combined" in ran.stderr


def test_a_file_that_cannot_be_written_is_an_error(analyze: Analyze) -> None:
    ran = analyze("--flamegraph", "missing/idle.svg")
    assert ran.exit_code == 1
    assert "cannot write missing/idle.svg" in str(ran.exception) + ran.stderr


@pytest.mark.usefixtures("tmp_path")
def test_a_report_without_samples_says_how_to_record_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(main, ["analyze", REPORT, "--flamegraph", "idle.svg"])
    assert ran.exit_code != 0
    assert "nsysflow profile --sample-python 1000 -- COMMAND" in str(ran.exception) + ran.stderr
    assert not [*tmp_path.iterdir()]
