"""docs/case-studies.md: each command prints what is shown, and each pair has its case."""

import re
from typing import Final

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from nsysflow.units import duration, percent
from tests.pairs import NOT_IDLE, PAIRS, share, step_ns
from tests.reports import ROOT
from tests.shown import commands, console_blocks, is_shown

CASES: Final = (ROOT / "docs" / "case-studies.md").read_text(encoding="utf-8")
SHOWN: Final = [
    pytest.param(command, shown, id=command)
    for block in console_blocks(CASES)
    for command, shown in commands(block)
]
COMPARED: Final = [
    *((pair.before, pair.after, pair.causes) for pair in PAIRS if pair.after),
    ("rolloutcopy-torch", "rolloutcopy-graph", ("launch",)),
    ("overlap-in_turn", "overlap-side_stream", ("copy_exposed",)),
    ("ddp-no_overlap-rank0", "ddp-bucketed-rank0", ("comm_exposed",)),
    ("fusion-eager", "fusion-fused", ()),
]
"""What the table of the case studies compares: before, after, and which parts of a step."""


def compared(before: str, after: str, parts: tuple[str, ...]) -> str:
    """A row of that table, of the steady steps."""
    names = (before, after)
    shares = [percent(100 * share(name, *parts)) if parts else "" for name in names]
    times = [duration(round(step_ns(name))) for name in names]
    return " | ".join([f"`{before}`", f"`{after}`", " + ".join(parts), *shares, *times])


@pytest.mark.slow
@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_a_command_prints_what_is_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    program, *words = command.split()
    assert program == "nsysflow"
    assert "--no-files" in words, "it would write beside the sample"
    printed = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert is_shown(shown, printed), f"$ {command}\n{printed}"


def test_the_table_of_the_case_studies_is_what_the_samples_say() -> None:
    rows = re.findall(r"^\| (`.*) \|$", CASES, re.MULTILINE)
    assert sorted(rows) == sorted(compared(*each) for each in COMPARED)


def test_every_pair_has_its_case_with_before_and_after() -> None:
    cases = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", CASES, re.MULTILINE | re.DOTALL))
    for pair in PAIRS:
        case = cases[pair.before.partition("-")[0]]
        for name in filter(None, (pair.before, pair.after)):
            assert f"samples/{name}.sqlite.xz" in case, name
    assert {*NOT_IDLE} <= {*cases}
