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
from tests.analyses import SCHEMAS

SCREEN: Final = 100, 45


def lines(page: Explained) -> list[str]:
    return [line.plain for line in set_explained(page, SCREEN[0])]


def test_every_name_has_a_page_that_fits_a_line_and_most_a_screen() -> None:
    kinds = names_by_kind()
    short = {*CAUSES, *kinds["bounds"], *kinds["findings"]}
    for name in {name for names in kinds.values() for name in names}:
        pages = [*pages_of(name)]
        assert pages, name
        for page in pages:
            assert page.title.startswith(name)
            assert max(map(len, lines(page))) <= SCREEN[0], name
            assert name not in short or len(lines(page)) <= SCREEN[1], name


def test_the_page_of_a_table_says_what_each_column_means() -> None:
    (page,) = pages_of("syncs")
    named = {line.split()[0] for line in lines(page) if line and not line.startswith(" ")}
    assert {*SCHEMAS["syncs"]} <= named


def test_the_contents_fit_one_screen_and_name_all_but_the_columns() -> None:
    shown = lines(contents())
    assert len(shown) <= SCREEN[1]
    words = {word.strip(",") for line in shown for word in line.split()}
    for kind in ("causes", "bounds", "findings", "tables"):
        assert {*names_by_kind()[kind]} <= words


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        # the name of several facts is said once, one without words not at all
        (Facts(rows=(("saves", "one"), ("saves", "two"), ("where", "here"))),
         ["", "saves  one", "       two", "where  here"]),
        (Facts(rows=(("saves", ""),)), []),
        (Facts(rows=(("saves", "a" * 20 + " " + "b" * 20),)),
         ["", f"saves  {'a' * 20}", f"       {'b' * 20}"]),
        (Points(title="Do", items=("one", "two"), numbered=True),
         ["", "Do", "  1. one", "  2. two"]),
        (Points(title="Do", items=("one",)), ["", "Do", "  - one"]),
        (Points(title="Do", items=()), []),
        (Prose(title="", text="words"), ["", "  words"]),
        # code is never wrapped
        (Lines(title="Before", lines=("x = 1" + " + 1" * 20, "", "y = 2")),
         ["", "Before", "  x = 1" + " + 1" * 20, "", "  y = 2"]),
        # a name from the program cannot control the terminal
        (Prose(title="", text="a\x1b[31mb"), ["", "  a·[31mb"]),
    ],
)  # fmt: skip
def test_a_part_is_set_in_lines(part: Part, shown: list[str]) -> None:
    page = Explained(kind="rule", title="title", parts=(part,))
    assert [line.plain for line in set_explained(page, 30)][2:] == shown


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
