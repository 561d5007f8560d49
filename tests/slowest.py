"""Writes tests/slow.txt: the tests that take seconds, which `make test` leaves to `make long`.

make test MARKS="not browser and not long" PYTEST_ADDOPTS=--durations=0 | tee run.txt
.venv/bin/python -m tests.slowest run.txt
"""

import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Final

from tests.reports import PACKED, RULES

SLOW_S: Final = 1.0
"""A test function of which one case takes longer is slow (two cores, 2026-11-28)."""

ALWAYS: Final = (
    "tests/docs/test_pages.py::test_a_command_prints_what_is_shown",
    "tests/analysis/test_oracle_agrees.py::test_random_traces_agree_with_the_oracle",
    "tests/analysis/test_oracle_agrees.py::test_every_table_of_a_real_report_agrees_with_the_oracle",
    "tests/report/test_findings_agree.py::test_page_table_explanation_and_report_json_agree",
    "tests/analysis/findings/test_findings.py::test_savings_can_be",
)
"""These belong to each run, however long they take: they hold most."""

LIST: Final = Path(__file__).with_name("slow.txt")

_ROW: Final = re.compile(r"([\d.]+)s (?:call|setup|teardown) +((\S+?::\w+)\S*)", re.MULTILINE)


@cache
def slow_tests() -> frozenset[str]:
    """The functions on the list, such as `tests/test_kills.py::test_nothing_is_lost`."""
    return frozenset(LIST.read_text().split())


def slowest(durations: str) -> list[str]:
    """The functions of which a case takes `SLOW_S` or more, in order.

    Args:
        durations: what `pytest --durations=0` prints.
    """
    others = {*PACKED} - {*RULES}  # all tests of these are slow
    spent: defaultdict[tuple[str, str], float] = defaultdict(float)
    for seconds, case, function in _ROW.findall(durations):
        if case.rpartition("@")[2] not in others:
            spent[function, case] += float(seconds)
    slow = {function for (function, _), seconds in spent.items() if seconds >= SLOW_S}
    return sorted(slow - {*ALWAYS})


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in slowest(Path(sys.argv[1]).read_text())))
