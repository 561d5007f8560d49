"""Where the host was for each idle nanosecond (spec §3.17 to §3.22)."""

from collections import Counter

from tests.oracle.account_table import causes_in
from tests.oracle.accounting import Keep
from tests.oracle.calls import STALLS
from tests.oracle.gaps import Gap
from tests.oracle.report import Path, Report, joined

NOT_RECORDED = "(not recorded)"

Spot = Path | None
"""A path, empty outside all ranges; None where the cause is `unknown`."""

NONE: Counter[Spot] = Counter()
"""Of a cause that a gap does not have."""


def name_of(spot: Spot) -> str:
    """How tables write a place."""
    return NOT_RECORDED if spot is None else joined(spot)


def places_in(report: Report, gap: Gap, cause: str, keep: Keep | None = None) -> Counter[Spot]:
    """§3.22: the places of one cause of a gap, and the ns at each, by largest remainder."""
    whole = _places(report, gap, cause)
    if keep is None:
        return whole
    total, kept = gap.causes[cause], causes_in(gap, keep)[cause]
    if not kept:
        return Counter()
    given = Counter({spot: ns * kept // total for spot, ns in whole.items()})
    rest = kept - given.total()
    remainders = sorted(whole, key=lambda spot: (-(whole[spot] * kept % total), spot or ()))
    given.update(remainders[:rest])
    return +given


def main_place(report: Report, gap: Gap) -> Spot:
    """§3.21: the place with most of the gap's largest part; the first of equals, name by name."""
    places = _places(report, gap, gap.cause)
    return min(places, key=lambda spot: (-places[spot], spot or ()))


def culprit_at(report: Report, gap: Gap, cause: str, spot: Spot) -> int | None:
    """§3.23: the call to blame at a place."""
    places = _places(report, gap, cause)
    if len(places) <= 1:
        return report.gaps.culprit_call(gap, cause)
    there: Counter[int] = Counter()
    for call, ns in _inside(gap, cause):
        if report.place(call).path == spot:
            there[call] += ns
    most = min(there, key=lambda call: (-there[call], call), default=None)
    return None if most is None or places[spot] - there.total() > there[most] else most


def _inside(gap: Gap, cause: str) -> list[tuple[int, int]]:
    """The calls that time of the cause lies in or is charged to."""
    return list(gap.by_call[cause].items()) if cause in STALLS else gap.inside_calls.get(cause, [])


def _places(report: Report, gap: Gap, cause: str) -> Counter[Spot]:
    """Found once for a gap: nobody may change it."""
    if cause not in gap.places:
        gap.places[cause] = _found(report, gap, cause) if gap.causes[cause] else NONE
    return gap.places[cause]


def _found(report: Report, gap: Gap, cause: str) -> Counter[Spot]:
    launch = report.calls.launch[gap.next_op]
    if launch is None or cause == "unknown":  # §3.19
        return Counter({None if cause == "unknown" else (): gap.causes[cause]})
    found: Counter[Spot] = Counter()
    if cause in ("queue_delay", "dependency"):  # §3.19
        in_replay = report.calls.launch[gap.prev_op] == launch
        place = report.op_place(gap.next_op) if in_replay else report.place(launch)
        found[place.path] += gap.causes[cause]
        return +found
    # §3.17: inside calls
    for call, ns in _inside(gap, cause):
        found[report.place(call).path] += ns
    # §3.18: the rest lies between calls, or is the profiler's
    host = gap.host_place.path if gap.starts_before_launch else report.place(launch).path
    found[host] += gap.causes[cause] - sum(ns for _, ns in _inside(gap, cause))
    return +found
