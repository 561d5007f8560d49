"""The pages of all real reports: they fit a screen, and what they propose to type works."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shlex import quote, split
from typing import Final

import pytest

from nsysflow.report.page import Length
from nsysflow.report.text import page_lines
from nsysflow.report.verdict import judge
from tests.analyses import KINDS, reports_of_rules, run_of
from tests.cli.running import run
from tests.reports import PACKED, ROOT

PROPOSED: Final = re.compile(r"(?<!\S)--(?:table|steps|device|whole)(?: (?:'[^']*'|[\w:]+))?")
"""An option of `analyze` on a page, with its value."""

SCREEN: Final = 100, 45
"""Columns and lines."""

SHOWN_LINES: Final = 3
"""A heading, the names of the columns and one row."""


pytestmark = pytest.mark.usefixtures("shared")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def typed(name: str) -> str:
    """The path of a report as a shell takes it."""
    return quote(str(PACKED[name].relative_to(ROOT)))


def proposed(name: str) -> Iterator[str]:
    """The commands that both pages of a report name, and those of the options that they name."""
    lengths: tuple[Length, ...] = ("page", "full")
    for length in lengths:
        lines = page_lines(run_of(name), width=10_000, length=length, top=None)  # breaks no command
        text = "\n".join(line.plain for line in lines)
        yield from re.findall(r"nsysflow (?:analyze|explain) .*", text)
        for option in PROPOSED.findall(text):
            only = "" if option.startswith("--table") else " --no-files"
            yield f"nsysflow analyze {typed(name)} {option}{only}"


def printed(command: str) -> str:
    """What a command prints, which must end well."""
    program, *words = split(command)
    assert program == "nsysflow"
    return run(*words).stdout


def shows(command: str) -> None:
    assert len(printed(command).splitlines()) >= SHOWN_LINES, command


@cache
def explained(name: str, number: int) -> str:
    return printed(f"nsysflow explain {number} {typed(name)}")


def commands_of(page_on_finding: str) -> list[str]:
    """The commands that it ends with."""
    whole = page_on_finding.replace(" \\\n", "")
    return re.findall(r"^  (nsysflow .*)$", whole, re.MULTILINE)


@reports_of_rules
def test_every_real_report_is_valid_and_fits_a_screen(name: str) -> None:
    results = run_of(name)
    judgement = judge(results)
    assert judgement.valid
    assert judgement.bound is not None
    assert not any("wrong time" in remark for remark in judgement.remarks)
    for width in (80, SCREEN[0], 120):
        lines = [*page_lines(results, width=width, top=None)]
        assert max(line.cell_len for line in lines) <= width
        if width == SCREEN[0] and results.accounting.height == 1:
            assert len(lines) <= SCREEN[1]


TYPED: Final = ("h200-ddp-rank0", "h200-hf-trainer", "nan_check-sync")
each_typed = pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in TYPED else pytest.mark.long) for each in KINDS]
)
"""What pages propose to type is typed for some kinds of reports, and for all in the long tests."""


@each_typed
def test_every_command_of_a_page_shows_something(name: str) -> None:
    for command in dict.fromkeys(proposed(name)):
        shows(command)


@each_typed
def test_every_finding_is_explained_and_the_first_replayed(name: str, tmp_path: Path) -> None:
    found = run_of(name).found.valued
    for number, each in enumerate(found, start=1):
        shown = explained(name, number)
        assert f"finding {number} of {len(found)} in {name}" in shown
        *others, of_rule = commands_of(shown)
        assert of_rule == f"nsysflow explain {each.finding.rule}"
        for command in (of_rule, *others):
            if "--flamegraph" in command:
                picture = tmp_path / "idle.svg"
                printed(command.replace(picture.name, str(picture)))
                assert picture.read_text(encoding="utf-8").startswith("<svg ")
            elif "whatif" not in command or number == 1:
                shows(command)


def test_a_page_names_tables_and_findings_and_a_finding_its_replay() -> None:
    """Else the tests above would run nothing."""
    every = "\n".join([*proposed("h200-hf-trainer"), *commands_of(explained("h200-hf-trainer", 1))])
    for part in ("--table kernels", "nsysflow explain 1 ", "nsysflow whatif "):
        assert part in every
