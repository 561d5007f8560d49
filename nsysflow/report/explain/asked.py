"""What is asked for: a finding by its number, or what has a name. Errors say what there is."""

from collections.abc import Iterator

from nsysflow.base.errors import UnknownName
from nsysflow.base.names import nearest
from nsysflow.report.explain.explained import Explained
from nsysflow.report.explain.finding import explain_finding
from nsysflow.report.explain.names import names_by_kind
from nsysflow.report.explain.pages import pages_of
from nsysflow.report.explain.words import known_as
from nsysflow.report.results import Results


def numbered_finding(results: Results, number: int, width: int) -> Explained:
    """One finding in full, for a terminal of `width` columns.

    Raises:
        UnknownName: the run has no finding of that number.
    """
    count = len(results.found.valued)
    if not 1 <= number <= count:
        raise UnknownName(*_no_such(number, count, results))
    return explain_finding(results, number, width)


def _no_such(number: int, count: int, results: Results) -> tuple[str, str]:
    """What is said where there is no finding of that number."""
    seen = f"{', '.join(results.reports)} has no finding {number}"
    if count:
        return seen, "Its only one is 1" if count == 1 else f"Its findings are 1 to {count}"
    return seen, "No change that nsysflow knows would save 1 % of its time"


def pages_asked_for(typed: str) -> Iterator[Explained]:
    """The pages on a name, or on a word of the page.

    Raises:
        UnknownName: no page is on it.
    """
    name = known_as(typed)
    if name is not None:
        return pages_of(name)
    seen = f"nothing is called {typed!r}"
    near = " or ".join(nearest(typed, [each for of in names_by_kind().values() for each in of]))
    if near:
        raise UnknownName(seen, f"Did you mean {near}?")
    raise UnknownName(seen, "See what there is", "nsysflow explain")
