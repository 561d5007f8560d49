"""The help pages: one for each meaning of a name."""

from typing import Final

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.tables.schema import SCHEMAS
from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.explain.pages import Explained, contents, pages_of, set_explained

NAMES: Final = sorted({name for names in names_by_kind().values() for name in names})
SCREEN: Final = 100, 45


def lines(page: Explained) -> list[str]:
    return [line.plain for line in set_explained(page, SCREEN[0])]


def kinds(name: str) -> list[str]:
    return [page.kind for page in pages_of(name)]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_a_page_that_fits_a_line(name: str) -> None:
    pages = [*pages_of(name)]
    assert pages
    for page in pages:
        assert page.title.startswith(name)
        assert max(map(len, lines(page))) <= SCREEN[0]


@pytest.mark.parametrize(
    "name", [*CAUSES, *names_by_kind()["bounds"], *names_by_kind()["findings"]]
)
def test_a_page_fits_one_screen(name: str) -> None:
    assert all(len(lines(page)) <= SCREEN[1] for page in pages_of(name))


def test_a_name_of_two_things_has_a_page_for_each() -> None:
    assert kinds("copies") == ["bound", "table"]
    assert kinds("gaps") == ["table", "column"]
    assert kinds("sync") == ["cause of idle time"]


def test_the_page_of_a_table_says_what_each_column_means() -> None:
    (page,) = pages_of("syncs")
    named = {line.split()[0] for line in lines(page) if line and not line.startswith(" ")}
    assert {*SCHEMAS["syncs"]} <= named


def test_a_column_that_means_two_things_says_which_in_which_table() -> None:
    (page,) = pages_of("start_ns")
    shown = "\n".join(lines(page))
    assert "in accounting: start of the window" in shown
    assert "in syncs, gaps, steps, starved, each_copy, collectives, induced: when it" in shown


def test_the_column_of_a_cause_leads_to_the_cause() -> None:
    (page,) = pages_of("sync_ns")
    assert "more  nsysflow explain sync" in lines(page)


def test_a_table_that_only_sums_up_has_no_column_of_each_cause() -> None:
    (page,) = pages_of("sync")
    assert any(
        line.startswith("column       sync_ns, in accounting, phases,") for line in lines(page)
    )


def test_the_contents_fit_one_screen_and_name_all_but_the_columns() -> None:
    shown = lines(contents())
    assert len(shown) <= SCREEN[1]
    words = {word.strip(",") for line in shown for word in line.split()}
    for kind in ("causes", "bounds", "findings", "tables"):
        assert {*names_by_kind()[kind]} <= words
