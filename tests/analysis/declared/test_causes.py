"""The declared causes: what code elsewhere relies on."""

import re

from nsysflow.analysis.declared.causes import CAUSES, DECLARED, STALLS


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
