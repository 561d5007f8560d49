"""What is kept: an answer is made once for the same question, or with the files of an analysis."""

import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from nsysflow.analysis.tables.index import ABOUT
from nsysflow.cli import answers
from nsysflow.runs import analyze
from nsysflow.runs.cache import VARIABLE
from tests.cli.running import imported, run
from tests.reports import PACKED
from tests.runs.keeping import kept_in

pytestmark = pytest.mark.usefixtures("shared")


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A report; every answer on it is kept from now on."""
    kept_in(tmp_path / "cache", monkeypatch)
    return str(shutil.copy(PACKED["nan_check-sync"], tmp_path))


@pytest.fixture
def analyses(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts the analyses."""
    counted = Mock(side_effect=analyze.analyze_reports)
    monkeypatch.setattr(analyze, "analyze_reports", counted)
    return counted


def said(*words: str | Path) -> tuple[str, str]:
    """What a command prints to stdout and stderr."""
    done = run(*words)
    return done.stdout, done.stderr


def page(*words: str | Path) -> str:
    return said("analyze", "--no-files", *words)[0]


@pytest.mark.parametrize(
    "words",
    [
        ["analyze", "--no-files"],
        ["analyze", "--no-files", "--full"],
        ["analyze", "--table", "syncs"],
        ["analyze", "--table", "starved"],  # without rows: a remark alone
        ["analyze", "--table", "kernels", "--wide", "--top", "2"],
        ["analyze", "--table", "kernels", "--format", "md"],
        ["explain", "1"],
    ],
    ids=" ".join,
)
def test_a_second_answer_takes_no_analysis(words: list[str], report: str, analyses: Mock) -> None:
    first = said(*words, report)
    assert any(first)
    assert (said(*words, report), analyses.call_count) == (first, 1)


def test_after_the_files_are_written_page_findings_and_tables_take_no_analysis(
    report: str, analyses: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = [
        ["analyze", "--no-files", report],
        *(["explain", str(number), report] for number in (1, 2)),
        *(["analyze", "--table", name, report] for name in ABOUT if name != "gaps"),
    ]
    said("analyze", report)
    kept = [said(*words) for words in questions]
    assert analyses.call_count == 1
    monkeypatch.setenv(VARIABLE, "off")
    # a page, a finding and a table each: all others would take an analysis, too
    assert [said(*words) for words in questions[:4]] == kept[:4]


@pytest.mark.parametrize(
    "words", [["--top", "1"], ["--skip", "1"], ["--no-cache"], ["--json"]], ids=" ".join
)
def test_another_question_is_answered_anew(words: list[str], report: str, analyses: Mock) -> None:
    page(report)
    page(report, *words)
    assert analyses.call_count == 2


def test_a_report_that_changed_gets_a_new_answer(report: str) -> None:
    first = page(report)
    Path(report).write_bytes(PACKED["nan_check-async"].read_bytes())
    assert page(report) != first


def test_an_answer_that_is_made_fast_is_not_kept(
    report: str, analyses: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "WORTH_S", 1000)
    said("analyze", report)
    page(report)
    page(report)
    assert analyses.call_count == 3


@pytest.mark.parametrize(
    "words",
    [["analyze", "--no-files"], ["analyze", "--table", "gaps"], ["explain", "1"]],
    ids=" ".join,
)
def test_a_kept_answer_is_printed_without_polars(words: list[str], report: str) -> None:
    first = said(*words, report)
    printed, modules = imported(*words, report)
    assert printed == first[0]
    assert "polars" not in modules


def test_the_cache_lists_what_was_used_last(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(report)
    page(report)
    first, _, head, row = run("cache").stdout.splitlines()
    assert "cache: 1 kept (" in first
    assert head.split() == ["size", "last", "used", "what"]
    assert row.endswith(file.name)
    monkeypatch.setattr("nsysflow.cli.cache._SHOWN", 1)
    page(file.rename(file.with_name("other.sqlite.xz")))  # another page
    page(shutil.copy(PACKED["nan_check-async"], file.parent))
    *_, row, rest = run("cache").stdout.splitlines()
    assert row.endswith(".sqlite.xz")
    assert rest.startswith("longer unused: 2 kept (")


def test_prune_keeps_what_is_of_use_and_clear_does_not(report: str) -> None:
    page(report)
    assert run("cache", "--prune").stdout.startswith("removed 0 from ")
    assert run("cache", "--clear").stdout.startswith("removed 1 from ")
    assert "cache: 0 kept (0)" in run("cache").stdout


def test_it_says_that_it_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    assert run("cache").stdout == "nothing is kept: NSYSFLOW_CACHE is off\n"


def test_no_cache_holds_for_command_or_file(report: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.environ[VARIABLE]
    page(report, "--no-cache")
    assert os.environ[VARIABLE] == before
    monkeypatch.chdir(Path(report).parent)
    Path("nsysflow.toml").write_text("[analyze]\nno-cache = true\n")
    page(report)
    run("explain", "1", report)
    assert "cache: 0 kept" in run("cache").stdout
