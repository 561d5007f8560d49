"""What can be asked for by the words of the page."""

import pytest

from nsysflow.analysis.causes import CAUSES
from nsysflow.report.explain.pages import known_as
from nsysflow.report.verdict import WORDS


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
