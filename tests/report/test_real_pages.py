"""The pages of all real reports: they fit a screen, and what they propose to type works."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from shlex import quote, split
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

import nsysflow
import nsysflow.runs.library  # now: what it imports is replaced for commands
from nsysflow.analysis import analyze as analysis
from nsysflow.analysis.options import Options
from nsysflow.cli.main import main
from nsysflow.report.page import Length
from nsysflow.report.results import Results
from nsysflow.report.terminal import page
from nsysflow.report.verdict import judge
from nsysflow.runs import analyze as runs_analyze
from nsysflow.runs import loading
from tests.analyses import analysed as analysed_by_all
from tests.analyses import every_report, few_reports, loaded, run_of
from tests.reports import PACKED, ROOT

PROPOSED: Final = re.compile(r"(?<!\S)--(?:table|steps|device|whole)(?: (?:'[^']*'|[\w:]+))?")
"""An option of `analyze` on a page, with its value."""

SCREEN: Final = 100, 45
"""Columns and lines."""

SHOWN_LINES: Final = 3
"""A heading, the names of the columns and one row."""


def typed(name: str) -> str:
    """The path of a report, from the repository's root."""
    return str(PACKED[name].relative_to(ROOT))


@pytest.fixture(autouse=True)
def analysed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands get the analyses that all tests share."""
    names = {typed(name): name for name in PACKED}
    load = loading.load

    def analysed(paths: Sequence[Path], options: Options, **_asked: object) -> Results:
        (name,) = (names[str(path)] for path in paths)
        run = run_of(name)
        if options == Options():
            return run
        return Results([nsysflow.analyze(loaded(name), options)], origin=run.origin)

    def traced(path: Path, **asked: Any) -> nsysflow.Trace:
        name = names.get(str(path))  # not where `loaded` itself loads it: that names a whole path
        return load(path, **asked) if name is None else loaded(name)

    def replayed(trace: nsysflow.Trace, options: Options) -> nsysflow.Analysis:
        if options == Options():
            return analysed_by_all(trace.report)
        return nsysflow.analyze(trace, options)

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(runs_analyze, "analyze_reports", analysed)
    monkeypatch.setattr(loading, "load", traced)
    monkeypatch.setattr(analysis, "analyze", replayed)


@cache
def text_of(name: str, length: Length) -> str:
    """A page with lines so long that no command is broken."""
    lines = page(run_of(name), width=10_000, length=length, top=None)
    return "\n".join(line.plain for line in lines)


def proposed(name: str) -> Iterator[str]:
    """The commands that both pages of a report name, and those of the options that they name."""
    report = quote(typed(name))
    for length in ("page", "full"):
        text = text_of(name, length)
        yield from re.findall(r"nsysflow (?:analyze|explain) .*", text)
        for option in PROPOSED.findall(text):
            only = "" if option.startswith("--table") else " --no-files"
            yield f"nsysflow analyze {report} {option}{only}"


def run(command: str) -> Result:
    program, *words = split(command)
    assert program == "nsysflow"
    return CliRunner().invoke(main, words)


def holds(command: str) -> None:
    """A command runs and shows something."""
    result = run(command)
    assert result.exit_code == 0, f"{command}\n{result.output}"
    assert len(result.stdout.splitlines()) >= SHOWN_LINES, f"{command}\n{result.output}"


def draws(command: str, file: Path) -> None:
    """A command writes a picture."""
    result = run(command.replace(file.name, str(file)))
    assert result.exit_code == 0, f"{command}\n{result.output}"
    assert file.read_text(encoding="utf-8").startswith("<svg ")


@cache
def explained(name: str, number: int) -> str:
    """The page on a finding."""
    result = run(f"nsysflow explain {number} {quote(typed(name))}")
    assert result.exit_code == 0, result.output
    return result.stdout


def commands_of(page_on_finding: str) -> list[str]:
    """The commands that it ends with."""
    whole = page_on_finding.replace(" \\\n", "")
    return re.findall(r"^  (nsysflow .*)$", whole, re.MULTILINE)


@every_report
def test_every_real_report_is_valid_and_fits_a_screen(name: str) -> None:
    run, (width, height) = run_of(name), SCREEN
    judgement = judge(run)
    assert judgement.valid
    assert judgement.bound is not None
    assert not any("wrong time" in remark for remark in judgement.remarks)
    lines = [*page(run, width=width, top=None)]
    assert max(line.cell_len for line in lines) <= width
    if run.accounting.height == 1:
        assert len(lines) <= height


@few_reports
def test_no_line_is_longer_than_the_screen_is_wide(name: str) -> None:
    for width in (80, 120):
        lines = page(run_of(name), width=width, top=None)
        assert max(line.cell_len for line in lines) <= width


@few_reports
def test_every_command_of_a_page_shows_something(name: str) -> None:
    for command in dict.fromkeys(proposed(name)):
        holds(command)


@few_reports
def test_every_finding_can_be_explained_and_the_first_one_replayed(
    name: str, tmp_path: Path
) -> None:
    found = run_of(name).found.valued
    for number, each in enumerate(found, start=1):
        shown = explained(name, number)
        assert f"finding {number} of {len(found)} in {name}" in shown
        *others, of_rule = commands_of(shown)
        assert of_rule == f"nsysflow explain {each.finding.rule}"
        for command in (
            of_rule,
            *(other for other in others if "whatif" not in other or number == 1),
        ):
            if "--flamegraph" in command:
                draws(command, tmp_path / "idle.svg")
            else:
                holds(command)


def test_a_page_names_tables_and_findings_and_a_finding_its_replay() -> None:
    """Else the tests above would run nothing."""
    every = "\n".join([*proposed("h200-gpt2-eager"), *commands_of(explained("h200-gpt2-eager", 1))])
    for part in ("--table kernels", "--table findings", "nsysflow explain 1 ", "nsysflow whatif "):
        assert part in every
