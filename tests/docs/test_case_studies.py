import re
from typing import Final

import pytest
from click.testing import CliRunner

from nsysflow.base.units import duration
from nsysflow.cli.main import main
from tests.pairs import NOT_IDLE, PAIRS, steady, step_ns
from tests.reports import ROOT
from tests.shown import commands, console_blocks, is_shown

pytestmark = pytest.mark.xdist_group("pairs")

CASES: Final = (ROOT / "docs" / "case-studies.md").read_text(encoding="utf-8")
OF_EACH_BOUND: Final = re.compile("nan_check-sync|launch_bound-eager[.]|fusion-eager|ddp-no_")
SHOWN: Final = [
    pytest.param(
        command,
        shown,
        id=command,
        marks=pytest.mark.slow if OF_EACH_BOUND.search(command) else pytest.mark.long,
    )
    for block in console_blocks(CASES)
    for command, shown in commands(block)
]
COMPARED: Final = [
    *((pair.before, pair.after) for pair in PAIRS if pair.after),
    ("rolloutcopy-torch", "rolloutcopy-graph"),
    ("overlap-in_turn", "overlap-side_stream"),
    ("ddp-no_overlap-rank0", "ddp-bucketed-rank0"),
    ("fusion-eager", "fusion-fused"),
]
"""What the table of the case studies compares: before and after."""


def compared(before: str, after: str) -> str:
    """A row of that table, of the steps without the first and the last."""
    first = steady(before).findings.row(0, named=True)
    most = "" if first["method"] == "replay" else "up to "
    saved_ns = step_ns(before) - step_ns(after)
    times = [duration(round(ns)) for ns in (saved_ns, step_ns(before), step_ns(after))]
    predicted = f"{most}{duration(first['saving_high_ns'])}"
    return " | ".join([f"`{before}`", f"`{after}`", f"`{first['rule']}`", predicted, *times])


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_it_prints_what_is_shown(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, *words = command.split()
    assert program == "nsysflow"
    assert "--no-files" in words, "it would write beside the sample"
    printed = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert is_shown(shown, printed), f"$ {command}\n{printed}"


@pytest.mark.long
def test_the_table_of_the_case_studies_names_every_pair_and_is_what_some_samples_say() -> None:
    rows = re.findall(r"^\| (`.*) \|$", CASES, re.MULTILINE)
    named = (tuple(re.findall(r"`([^`]+)`", row)[:2]) for row in rows)
    assert sorted(named) == sorted(COMPARED)
    some = (each for each in COMPARED if OF_EACH_BOUND.search(f"{each[0]}."))
    assert {compared(*each) for each in some} <= {*rows}


def test_every_pair_has_its_case_with_before_and_after() -> None:
    cases = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", CASES, re.MULTILINE | re.DOTALL))
    for pair in PAIRS:
        case = cases[pair.before.partition("-")[0]]
        for name in filter(None, (pair.before, pair.after)):
            assert f"samples/{name}.sqlite.xz" in case, name
    assert {*NOT_IDLE} <= {*cases}
