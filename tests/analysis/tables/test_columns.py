"""Every column of every table has words, and no words are left over."""

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.columns import columns_with_words, meaning
from nsysflow.analysis.tables.schema import SCHEMAS


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_means_something(table: str) -> None:
    for column in SCHEMAS[table]:
        said = meaning(table, column)
        assert said
        assert not said.endswith(".")


@pytest.mark.parametrize("table", SCHEMAS)
def test_words_are_of_columns_that_the_table_has(table: str) -> None:
    assert {*columns_with_words(table)} <= {*SCHEMAS[table]}


def test_what_holds_for_every_table_is_used_by_one() -> None:
    used = {
        column
        for table, schema in SCHEMAS.items()
        for column in schema
        if column not in columns_with_words(table)
    }
    assert {*columns_with_words("every")} <= used


def test_a_cause_names_its_column_as_its_declaration_does() -> None:
    assert meaning("gaps", "sync_ns") == (
        "idle time with the cause `sync`: the host was blocked in an explicit synchronization"
    )


def test_only_a_table_with_all_causes_takes_their_words() -> None:
    causes = {f"{cause}_ns" for cause in CAUSES}
    for table, schema in SCHEMAS.items():
        if causes - {*schema}:
            assert causes & {*schema} <= {*columns_with_words(table)}


def test_a_table_may_mean_something_else_by_a_column() -> None:
    assert meaning("accounting", "name") == "the GPU's model"
    assert meaning("kernels", "name") == "the full name"
