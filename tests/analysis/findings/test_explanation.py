"""What is said of each rule is complete, and its code is Python."""

import ast
from typing import Final

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.tables.index import ABOUT
from tests.reports import ROOT

EXPLAINED: Final = explanations()
WIDEST: Final = 94
"""So that code fits, indented, on a terminal of 100 columns."""


def rules_in_the_code() -> set[str]:
    """The names that `Finding(rule=...)` has in the rules' files."""
    names: set[str] = set()
    for file in (ROOT / "analysis" / "findings" / "rules").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "rule":
                texts = (each for each in ast.walk(node.value) if isinstance(each, ast.Constant))
                names |= {each.value for each in texts if isinstance(each.value, str)}
    return names


def test_every_rule_is_explained() -> None:
    rules = rules_in_the_code()
    assert {"sync-in-loop", "launch-bound"} <= rules
    assert rules <= {*EXPLAINED}


@pytest.mark.parametrize("rule", EXPLAINED)
def test_an_explanation_is_complete_and_names_what_there_is(rule: str) -> None:
    explained = EXPLAINED[rule]
    assert all((explained.about, explained.why, explained.signs, explained.leave))
    assert {*explained.causes} <= {*CAUSES}
    assert explained.tables
    assert {*explained.tables} <= {*ABOUT}


@pytest.mark.parametrize("rule", EXPLAINED)
def test_an_example_is_short_python_and_changes_something(rule: str) -> None:
    codes = EXPLAINED[rule].before, EXPLAINED[rule].after
    for code in codes:
        compile(code, rule, "exec")
        assert len(code.splitlines()) <= 12
        assert max(map(len, code.splitlines())) <= WIDEST
    assert len({*codes}) == 2
