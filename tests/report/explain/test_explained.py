"""How parts are set in lines."""

from nsysflow.report.explain.pages import (
    Explained,
    Facts,
    Lines,
    Part,
    Points,
    Prose,
    set_explained,
)


def lines(*parts: Part, width: int = 30) -> list[str]:
    page = Explained(kind="rule", title="title", parts=parts)
    return [line.plain for line in set_explained(page, width)][2:]


def test_facts_stand_beside_their_name_which_is_said_once() -> None:
    facts = Facts(rows=(("saves", "one"), ("saves", "two"), ("where", "here")))
    assert lines(facts) == ["", "saves  one", "       two", "where  here"]


def test_a_fact_without_words_is_left_out() -> None:
    assert lines(Facts(rows=(("saves", ""),))) == []


def test_the_lines_of_a_long_fact_stay_under_its_first() -> None:
    assert lines(Facts(rows=(("saves", "a" * 20 + " " + "b" * 20),))) == [
        "",
        f"saves  {'a' * 20}",
        f"       {'b' * 20}",
    ]


def test_points_are_numbered_where_the_order_matters() -> None:
    assert lines(Points(title="Do", items=("one", "two"), numbered=True))[1:] == [
        "Do",
        "  1. one",
        "  2. two",
    ]
    assert lines(Points(title="Do", items=("one",)))[-1] == "  - one"


def test_code_is_never_wrapped() -> None:
    code = "x = " + "1 + " * 20 + "1"
    assert lines(Lines(title="Before", lines=(code, "", "y = 2"))) == [
        "",
        "Before",
        f"  {code}",
        "",
        "  y = 2",
    ]


def test_what_has_no_lines_has_no_heading() -> None:
    assert lines(Points(title="Do", items=())) == []
    assert lines(Prose(title="", text="words")) == ["", "  words"]


def test_a_name_from_the_program_cannot_control_the_terminal() -> None:
    assert lines(Prose(title="", text="a\x1b[31mb"))[-1] == "  a·[31mb"
