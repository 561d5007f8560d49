from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from nsysflow.analysis.tables.index import declaration
from nsysflow.analysis.tables.syncs import SYNCS
from nsysflow.cli.main import main
from nsysflow.runs import analyze as runs_analyze
from tests.cli.running import refused
from tests.report.handmade import MS, Results, frame, handmade

MANY = frame(
    "syncs",
    *(
        {"api": f"cudaStreamSynchronize_{at}", "induced_idle_ns": at * MS, "phase": "step/" * 20}
        for at in range(100, 0, -1)
    ),
)


@pytest.fixture(autouse=True)
def _many_waits(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Analyses a run of 100 waits, in an empty folder."""
    results = Results([handmade(syncs=MANY.drop("report").to_dicts())])
    monkeypatch.setattr(runs_analyze, "analyze_reports", lambda *_asked, **_named: results)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("TERM", "xterm-256color")


def table(name: str, *words: str, columns: str = "") -> Result:
    """`nsysflow analyze --table` with COLUMNS as given."""
    typed = ["analyze", "run.sqlite", "--table", name, *words]
    return CliRunner(env={"COLUMNS": columns or None}).invoke(main, typed, catch_exceptions=False)


@pytest.mark.parametrize(
    ("columns", "width"),
    [("60", 60), ("80", 80), ("200", 200), ("", 110), ("0", 110), ("wide", 110)],
)
def test_no_line_is_longer_than_columns_says_or_else_the_pages(columns: str, width: int) -> None:
    lines = table("syncs", columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert "idle behind it" in lines[2]


def test_the_columns_that_are_not_shown_are_named_with_how_to_see_them() -> None:
    said = table("syncs", columns="60").stderr
    assert said.startswith("not shown: ")
    assert "blocked_ns" in said
    assert "--wide shows all columns" in said
    wide = table("syncs", "--wide", columns="60")
    assert "step/" * 20 in wide.stdout
    assert "gpu busy" in wide.stdout
    assert wide.stderr == ""


def test_the_columns_asked_for_are_shown_in_that_order() -> None:
    head = table("syncs", "--columns", "blocked_ns, api").stdout.splitlines()[2]
    assert head.split() == ["blocked", "api"]
    csv = table("syncs", "--columns", "blocked_ns,api", "--format", "csv").stdout
    assert csv.splitlines()[0] == "blocked_ns,api"
    of_gap_summary = refused("analyze", "run.sqlite", "--columns", "cause,blocked_ns")
    assert "gap_summary has no column 'blocked_ns'" in of_gap_summary


def test_a_pipe_gets_every_row_of_a_table_and_no_escape_code() -> None:
    shown = table("syncs").stdout
    assert shown.count("cudaStream") == 100
    assert "\x1b" not in shown
    csv = table("syncs", "--format", "csv", columns="60")
    read = pl.read_csv(csv.stdout_bytes)
    assert (read.columns, read.height, csv.stderr) == ([*SYNCS], 100, "")


@pytest.mark.usefixtures("_terminal")
def test_a_terminal_gets_a_screen_of_rows() -> None:
    done = table("syncs", columns="80")
    assert done.stdout.count("cudaStream") == 40
    assert "60 more rows; --top 100 shows all" in done.stderr
    assert table("syncs", "--top", "50", columns="80").stdout.count("cudaStream") == 50


@pytest.mark.parametrize("name", ["mfu", "ranks", "gpu_metrics", "starved"])
def test_an_empty_table_says_what_would_fill_it(name: str) -> None:
    done = table(name)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{name} has no rows: {declaration(name).filled_by}\n"
    csv = table(name, "--format", "csv")
    assert csv.stdout.splitlines() == [",".join(declaration(name).schema)]
