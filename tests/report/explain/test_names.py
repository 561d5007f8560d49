"""What can be asked for by name, and by the words of the page."""

import subprocess
import sys

import pytest

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.tables.schema import SCHEMAS
from nsysflow.report.explain.names import known_as, names_by_kind


def test_the_columns_are_those_of_all_tables() -> None:
    assert {*names_by_kind()["columns"]} == {name for schema in SCHEMAS.values() for name in schema}


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_is_known_by_its_label_too(name: str) -> None:
    assert known_as(CAUSES[name].label) == name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Sync", "sync"),
        ("host-bound", "host"),
        ("GPU-bound", "compute"),
        ("launch-bound", "launch-bound"),  # a rule of that name
        ("copy-bound", "copies"),
        ("blocking-copy", "blocking_copy"),
        ("induced_idle", "induced_idle_ns"),
    ],
)
def test_words_of_the_page_stand_for_names(typed: str, name: str) -> None:
    assert known_as(typed) == name


@pytest.mark.parametrize("typed", ["", "-", "snyc", "_ns", "report.sqlite"])
def test_anything_else_is_unknown(typed: str) -> None:
    assert known_as(typed) is None


def test_the_names_need_no_polars() -> None:
    code = (
        "import sys; from nsysflow.report.explain.names import names_by_kind\n"
        "names_by_kind(); print('polars' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
