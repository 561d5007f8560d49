"""The declared causes: what code elsewhere relies on."""

import re
from typing import Final

import pytest

from nsysflow.analysis.causes import CAUSES, DECLARED, STALLS
from nsysflow.analysis.concepts import bounds_in_full, causes_in_full
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.index import ABOUT
from tests.reports import ROOT


def test_names_are_distinct_and_so_are_the_words_on_screens() -> None:
    assert len(CAUSES) == len(DECLARED) == len({cause.label for cause in DECLARED})


def test_stalls_are_what_blocks_the_host() -> None:
    assert STALLS == ("sync", "blocking_copy", "alloc")


def test_only_causes_that_calls_make_have_a_claim_on_an_instant() -> None:
    for cause in DECLARED:
        of_a_call = cause.kind in ("profiler", "stall", "call", "launch", "other call")
        assert (cause.claim is not None) == of_a_call


def test_a_call_belongs_to_one_cause_except_blocking_copies_which_are_launches_too() -> None:
    names = ("cudaStreamSynchronize", "cudaMalloc", "cuModuleLoadData", "cudaLaunchKernel",
             "cudaMemcpyAsync", "cudaMemcpy", "cudaLaunchHostFunc", "cudaEventQuery")  # fmt: skip
    made = {
        name: [
            cause.name
            for cause in DECLARED
            if cause.calls is not None
            and re.fullmatch(cause.calls, name)
            and not (cause.calls_not and re.search(cause.calls_not, name))
        ]
        for name in names
    }
    assert made == {
        "cudaStreamSynchronize": ["sync"],
        "cudaMalloc": ["alloc"],
        "cuModuleLoadData": ["module_load"],
        "cudaLaunchKernel": ["launch"],
        "cudaMemcpyAsync": ["launch"],
        "cudaMemcpy": ["blocking_copy", "launch"],
        "cudaLaunchHostFunc": [],
        "cudaEventQuery": [],
    }


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
    assert {*concept.tables} <= {*ABOUT}
    assert {*re.findall(r"§(\d+)", concept.spec)} <= {*SECTIONS}
