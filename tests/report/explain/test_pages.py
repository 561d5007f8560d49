"""Help pages, and the names that lead to them."""

from typing import Final

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.explain.pages import (
    Explained,
    Facts,
    Lines,
    Part,
    Points,
    Prose,
    contents,
    known_as,
    pages_of,
    set_explained,
)
from nsysflow.report.verdict import WORDS
from tests.analyses import SCHEMAS

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


def explained_lines(*parts: Part, width: int = 30) -> list[str]:
    page = Explained(kind="rule", title="title", parts=parts)
    return [line.plain for line in set_explained(page, width)][2:]


def test_facts_stand_beside_their_name_which_is_said_once() -> None:
    facts = Facts(rows=(("saves", "one"), ("saves", "two"), ("where", "here")))
    assert explained_lines(facts) == ["", "saves  one", "       two", "where  here"]


def test_a_fact_without_words_is_left_out() -> None:
    assert explained_lines(Facts(rows=(("saves", ""),))) == []


def test_the_lines_of_a_long_fact_stay_under_its_first() -> None:
    assert explained_lines(Facts(rows=(("saves", "a" * 20 + " " + "b" * 20),))) == [
        "",
        f"saves  {'a' * 20}",
        f"       {'b' * 20}",
    ]


def test_points_are_numbered_where_the_order_matters() -> None:
    assert explained_lines(Points(title="Do", items=("one", "two"), numbered=True))[1:] == [
        "Do",
        "  1. one",
        "  2. two",
    ]
    assert explained_lines(Points(title="Do", items=("one",)))[-1] == "  - one"


def test_code_is_never_wrapped() -> None:
    code = "x = " + "1 + " * 20 + "1"
    assert explained_lines(Lines(title="Before", lines=(code, "", "y = 2"))) == [
        "",
        "Before",
        f"  {code}",
        "",
        "  y = 2",
    ]


def test_what_has_no_lines_has_no_heading() -> None:
    assert explained_lines(Points(title="Do", items=())) == []
    assert explained_lines(Prose(title="", text="words")) == ["", "  words"]


def test_a_name_from_the_program_cannot_control_the_terminal() -> None:
    assert explained_lines(Prose(title="", text="a\x1b[31mb"))[-1] == "  a·[31mb"


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_is_known_by_its_label_too(name: str) -> None:
    assert known_as(CAUSES[name].label) == name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Sync", "sync"),
        ("host-bound", "host"),
        ("compute-bound", "compute"),
        ("waiting for communication", "communication"),
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


def test_every_word_for_a_bound_is_known() -> None:
    assert None not in map(known_as, WORDS.values())
