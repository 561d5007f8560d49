"""Each cause and bound is explained, and names rules and tables that there are."""

import re
from typing import Final

import pytest

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.declared.concepts import bounds_in_full, causes_in_full
from nsysflow.analysis.declared.tables import TABLES
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.selection.bound import PARTS
from tests.reports import ROOT

CONCEPTS: Final = causes_in_full() | bounds_in_full()
SECTIONS: Final = re.findall(
    r"^## (\d+)\.", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_every_cause_is_explained() -> None:
    assert [*causes_in_full()] == [*CAUSES]


def test_no_bound_has_the_name_of_a_cause() -> None:
    assert not {*bounds_in_full()} & {*CAUSES}


def test_every_name_of_a_bound_is_explained() -> None:
    assert {*CONCEPTS} == {*PARTS}


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_is_complete_and_names_what_there_is(name: str) -> None:
    concept = CONCEPTS[name]
    assert all((concept.meaning, concept.reckoned, concept.usual, concept.remedies))
    assert {*concept.rules} <= {*explanations()}
    assert {*concept.tables} <= {*TABLES}
    assert {*re.findall(r"§(\d+)", concept.spec)} <= {*SECTIONS}
