"""Names as sentences and headings show them."""

from nsysflow.analysis.findings.finding import place
from nsysflow.base.names import one_line


def test_a_name_of_many_lines_is_cut_to_one() -> None:
    assert one_line("a" * 100) == "a" * 100
    assert one_line("a" * 60 + "b" * 60) == "a" * 49 + "…" + "b" * 50


def test_the_place_of_a_finding_has_such_a_name() -> None:
    assert place("a" * 200) == f" in {one_line('a' * 200)}"
