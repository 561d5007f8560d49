"""Every declared table has its function, its columns and its place."""

from importlib import import_module

import pytest

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.declared.tables import DECLARED, TABLES, Table
from nsysflow.analysis.schema import Frame
from nsysflow.analysis.tables import schema

every_table = pytest.mark.parametrize("table", DECLARED, ids=lambda table: table.name)


@every_table
def test_a_table_has_its_function(table: Table) -> None:
    module, function = table.made_by.split(":")
    assert callable(getattr(import_module(f"nsysflow.analysis.{module}"), function))


@every_table
def test_a_table_has_the_schema_of_its_name(table: Table) -> None:
    assert schema.SCHEMAS[table.name] is getattr(schema, table.name.upper())


@every_table
def test_a_table_is_a_property_of_an_analysis_that_lists_its_columns(table: Table) -> None:
    if not hasattr(Analysis, table.name):
        assert table.of == "run"  # nothing to compare in a single report
        return
    doc = getattr(Analysis, table.name).__doc__
    assert all(column in doc for column in schema.SCHEMAS[table.name])


@every_table
def test_a_table_is_listed_or_a_part_of_one_listed_table(table: Table) -> None:
    wholes = [each.name for each in TABLES.values() if table.name in each.parts]
    assert len(wholes) == (0 if table.listed else 1)


@every_table
def test_a_table_is_ranked_by_one_of_its_columns(table: Table) -> None:
    assert table.ranked_by is None or table.ranked_by in schema.SCHEMAS[table.name]


@every_table
def test_the_columns_it_shows_are_its_own_each_once(table: Table) -> None:
    shown = table.shown.split()
    assert {*shown} <= {*schema.SCHEMAS[table.name]}
    assert len({*shown}) == len(shown)
    assert bool(shown) == table.listed


def test_no_schema_is_of_no_table() -> None:
    frames = {name for name, value in vars(schema).items() if isinstance(value, Frame)}
    assert frames == {table.name.upper() for table in DECLARED}
