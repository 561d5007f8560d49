import pytest

from benchmarks import accuracy
from tests.reports import ROOT

pytestmark = pytest.mark.xdist_group("simulated")

ACCURACY, FACTS, POWER = (
    (ROOT / page).read_text(encoding="utf-8")
    for page in ("docs/accuracy.md", "docs/facts.md", "benchmarks/power.md")
)


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading such as `## Title`."""
    level = heading.partition(" ")[0]
    part = page.split(f"{heading}\n")[1].split(f"\n{level} ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.long
def test_the_pages_are_what_the_replay_gives() -> None:
    made = "\n".join(accuracy.page()) + "\n"
    assert made == ACCURACY, "run `python -m benchmarks.accuracy`"
    assert accuracy.with_log(FACTS) == FACTS, "run `python -m benchmarks.accuracy`"


@pytest.mark.parametrize(
    ("heading", "good"),
    [("## Programs that were changed and recorded again", 8), ("## The first finding", 10)],
)
def test_every_prediction_that_should_hold_does(heading: str, good: int) -> None:
    found = [row[7] for row in rows(FACTS, heading)]
    assert found.count("yes") == good
    assert {*found} == {"yes", ""}


@pytest.mark.parametrize("heading", ["### One capture a side", "### Several captures a side"])
def test_at_most_one_in_twenty_equal_pairs_is_an_alarm(heading: str) -> None:
    alarms = [float(row[2].removesuffix(" %")) for row in rows(POWER, heading)]
    assert alarms
    assert max(alarms) <= 5


def test_captures_of_one_program_differ_in_at_most_one_split_of_twenty() -> None:
    found = rows(POWER, "### Captures of one program against each other")
    assert sum(int(row[2]) for row in found) >= 0.95 * sum(int(row[1]) for row in found)
