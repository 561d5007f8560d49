"""Every table of the index has its module, its columns with their meanings, and its place."""

import subprocess
import sys

import pytest

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.index import ABOUT, NAMES, declaration, declarations
from nsysflow.analysis.tables.table import SHARED, Table

every_table = pytest.mark.parametrize("table", declarations(), ids=lambda table: table.name)


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


@every_table
def test_a_table_of_a_report_has_its_function(table: Table) -> None:
    assert callable(table.make) == (table.scope == "report")


@every_table
def test_a_table_is_a_property_of_an_analysis_that_lists_its_columns(table: Table) -> None:
    if not hasattr(Analysis, table.name):
        assert table.scope == "run"  # nothing to compare in a single report
        return
    doc = getattr(Analysis, table.name).__doc__
    assert all(column in doc for column in table.schema)


@every_table
def test_a_table_is_listed_or_a_part_of_one_listed_table(table: Table) -> None:
    wholes = [each.name for each in declarations(ABOUT) if table.name in each.parts]
    assert len(wholes) == (0 if table.name in ABOUT else 1)


@every_table
def test_a_table_is_ranked_by_one_of_its_columns(table: Table) -> None:
    assert table.ranked_by is None or table.ranked_by in table.schema


@every_table
def test_the_columns_it_shows_are_its_own_each_once(table: Table) -> None:
    shown = table.shown.split()
    assert {*shown} <= {*table.schema}
    assert len({*shown}) == len(shown)
    assert bool(shown) == (table.name in ABOUT)


@every_table
def test_every_column_means_something(table: Table) -> None:
    assert [*table.schema.meanings] == [*table.schema]
    for meaning in table.schema.meanings.values():
        assert meaning
        assert not meaning.endswith(".")


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
