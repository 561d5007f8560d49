"""Causes and tables as they are declared: what code elsewhere relies on."""

import re
import subprocess
import sys
from typing import Final

import pytest

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES, DECLARED, STALLS
from nsysflow.analysis.concepts import bounds_in_full, causes_in_full
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.selection.bound import PARTS
from nsysflow.analysis.tables.index import ABOUT, NAMES, declaration, declarations
from nsysflow.analysis.tables.table import SHARED, Table
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
    expected = {
        "cudaStreamSynchronize": ["sync"],
        "cudaMalloc": ["alloc"],
        "cuModuleLoadData": ["module_load"],
        "cudaLaunchKernel": ["launch"],
        "cudaMemcpyAsync": ["launch"],
        "cudaMemcpy": ["blocking_copy", "launch"],
        "cudaLaunchHostFunc": [],
        "cudaEventQuery": [],
    }
    assert expected == {
        name: [
            cause.name
            for cause in DECLARED
            if cause.calls is not None
            and re.fullmatch(cause.calls, name)
            and not (cause.calls_not and re.search(cause.calls_not, name))
        ]
        for name in expected
    }


CONCEPTS: Final = causes_in_full() | bounds_in_full()
SECTIONS: Final = re.findall(
    r"^## (\d+)\.", (ROOT / "docs" / "spec.md").read_text(encoding="utf-8"), re.MULTILINE
)


def test_every_cause_and_every_other_name_of_a_bound_is_explained() -> None:
    assert [*causes_in_full()] == [*CAUSES]
    assert {*bounds_in_full()} == {*PARTS} - {*CAUSES}


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_is_complete_and_names_what_there_is(name: str) -> None:
    concept = CONCEPTS[name]
    assert all((concept.meaning, concept.reckoned, concept.usual, concept.remedies))
    assert {*concept.rules} <= {*explanations()}
    assert {*concept.tables} <= {*ABOUT}
    assert {*re.findall(r"§(\d+)", concept.spec)} <= {*SECTIONS}


def test_a_table_that_nobody_declares_has_no_declaration() -> None:
    with pytest.raises(KeyError):
        declaration("nothing")


def test_the_index_needs_no_polars() -> None:
    code = "import sys, nsysflow.analysis.tables.index; print('polars' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_no_module_declares_a_table_that_is_not_in_the_index() -> None:
    declarations()
    modules = [of for name, of in sys.modules.items() if name.startswith("nsysflow.analysis.")]
    declared = [table for module in modules for table in getattr(module, "TABLES", ())]
    assert {table.name for table in declared if isinstance(table, Table)} == {*NAMES}


@pytest.mark.parametrize("table", declarations(), ids=lambda table: table.name)
def test_a_table_is_declared_in_full(table: Table) -> None:
    assert callable(table.make) == (table.scope == "report")
    # it is listed, or a part of one listed table
    wholes = [each.name for each in declarations(ABOUT) if table.name in each.parts]
    assert len(wholes) == (0 if table.name in ABOUT else 1)
    assert table.ranked_by is None or table.ranked_by in table.schema
    # the columns that it shows are its own, each once
    shown = table.shown.split()
    assert {*shown} <= {*table.schema}
    assert len({*shown}) == len(shown)
    assert bool(shown) == (table.name in ABOUT)
    assert [*table.schema.meanings] == [*table.schema]
    assert all(meaning and meaning[-1] != "." for meaning in table.schema.meanings.values())
    # an analysis has a property of its name, which lists its columns
    if hasattr(Analysis, table.name):
        doc = getattr(Analysis, table.name).__doc__
        assert all(column in doc for column in table.schema)
    else:
        assert table.scope == "run"  # nothing to compare in a single report


def test_a_column_that_tables_share_is_in_several() -> None:
    for name, column in SHARED.items():
        meanings = [table.schema.meanings.get(name) for table in declarations()]
        assert meanings.count(column.meaning) > 1, name


def test_a_cause_names_its_column_as_its_declaration_does() -> None:
    assert declaration("gaps").schema.meanings["sync_ns"] == (
        "idle time with the cause `sync`: the host was blocked in an explicit synchronization"
    )


def test_only_a_table_with_all_causes_takes_their_words() -> None:
    words = {f"{name}_ns": f"idle time with the cause `{name}`" for name in CAUSES}
    for table in declarations():
        meanings = table.schema.meanings
        of_cause = [name for name in words if meanings.get(name, "").startswith(words[name])]
        assert len(of_cause) in (0, len(CAUSES))


def test_a_table_may_mean_something_else_by_a_column() -> None:
    assert declaration("accounting").schema.meanings["name"] == "the GPU's model"
    assert declaration("kernels").schema.meanings["name"] == "the full name"
