"""The list of slow tests, and how it is made."""

from tests.reports import ROOT
from tests.slowest import ALWAYS, slow_tests, slowest

DURATIONS = """
0.70s call     tests/a_test.py::test_one[x]@tests/a_test.py
0.40s setup    tests/a_test.py::test_one[x]@tests/a_test.py
0.90s call     tests/a_test.py::test_two[x]@tests/a_test.py
0.90s call     tests/a_test.py::test_two[y]@tests/a_test.py
9.00s call     tests/a_test.py::test_three[h200-jax]@h200-jax
2.00s call     tests/a_test.py::test_three[h200-train]@h200-train
"""


def test_a_function_is_slow_if_one_case_of_it_is() -> None:
    others = DURATIONS.replace("h200-train", "h200-jax")
    assert slowest(DURATIONS) == ["tests/a_test.py::test_one", "tests/a_test.py::test_three"]
    assert slowest(others) == ["tests/a_test.py::test_one"]
    assert not slowest(f"9.00s call     {ALWAYS[0]}[x]@tests/docs/test_pages.py")


def test_each_test_on_the_list_is_one_that_there_is() -> None:
    for name in slow_tests() | {*ALWAYS}:
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(), name
