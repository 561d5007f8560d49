"""The page of a report is made once for the same question."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from nsysflow.cli import printed as kept_page
from nsysflow.cli.main import main
from nsysflow.runs import analyze
from tests.reports import sqlite_report
from tests.runs.keeping import kept_in


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A report; every page is kept from now on."""
    kept_in(tmp_path / "cache", monkeypatch)
    monkeypatch.setattr(kept_page, "WORTH_S", 0)
    return str(sqlite_report(tmp_path))


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts the analyses."""
    counted = Mock(side_effect=analyze.analyze_reports)
    monkeypatch.setattr(analyze, "analyze_reports", counted)
    return counted


def page(*words: str) -> str:
    done = CliRunner().invoke(main, ["analyze", "--no-files", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_second_page_is_the_first_one_and_takes_no_analysis(
    report: str, analyses: Mock
) -> None:
    first = page(report)
    assert (page(report), analyses.call_count) == (first, 1)


@pytest.mark.parametrize("words", [["--full"], ["--top", "1"], ["--skip", "1"], ["--no-cache"]])
def test_another_question_is_answered_anew(words: list[str], report: str, analyses: Mock) -> None:
    page(report)
    page(report, *words)
    assert analyses.call_count == 2


def test_another_width_is_another_page(
    report: str, analyses: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    page(report)
    monkeypatch.setenv("COLUMNS", "60")
    page(report)
    assert analyses.call_count == 2


def test_a_report_that_changed_gets_a_new_page(report: str, analyses: Mock) -> None:
    first = page(report)
    Path(report).write_bytes(sqlite_report(Path(report).parent, "h200-ddp-rank1").read_bytes())
    assert page(report) != first


def test_a_page_that_is_made_fast_is_not_kept(
    report: str, analyses: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_page, "WORTH_S", 1000)
    page(report)
    page(report)
    assert analyses.call_count == 2
