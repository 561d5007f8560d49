"""The checks that a recording must pass before anything is concluded from it (spec §12.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nsysflow.analysis.declared.diagnostics import IMPORT_ERRORS
from nsysflow.analysis.events.activity import kernel_launches
from nsysflow.analysis.events.events import Events
from nsysflow.analysis.selection.view import View
from nsysflow.analysis.trace import Trace
from nsysflow.analysis.validity.lost_stretches import lost_operations

UNSTAMPED_PCT: Final = 1
"""CUPTI writes 0 where it has no time. An operation at 0 is at the wrong place and has the wrong
length: from this share on, the parts of a step are off by more than they are told apart by."""


class Check(StrEnum):
    """A check, by the name that report.json has for it; in the order of their weight."""

    NO_KERNELS = "no-kernels"
    IMPORT_ERRORS = "import-errors"
    UNSTAMPED = "unstamped-operations"
    INCOMPLETE = "incomplete-capture"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A check that a report did not pass.

    Attributes:
        check: which one.
        count: how many are wrong: errors, operations or launches. Of NO_KERNELS, how many launches
            there are.
        of: how many there are in all. Of NO_KERNELS, how many operations of other kinds; of
            IMPORT_ERRORS, 0.
        start_ns: from when on; None where it is not a matter of time.
        end_ns: until when.
    """

    check: Check
    count: int
    of: int
    start_ns: int | None = None
    end_ns: int | None = None


def failed_checks(view: View) -> tuple[Failed, ...]:
    """The checks that the report fails, the weightiest first; none for a sound one."""
    events = view.events
    if _no_kernels(events):
        launches = int(events.calls.select(kernel_launches().sum()).item())
        return (Failed(check=Check.NO_KERNELS, count=launches, of=len(events.ops)),)
    return (*_import_errors(events), *_unstamped(events), *_incomplete(view))


def _no_kernels(events: Events) -> bool:
    """Whether not one kernel, nor a graph traced whole, is in a report of something else.

    torch.profiler records kernels only where it is asked to, which is another thing.
    """
    kernels = events.ops["kind"].is_in(["kernel", "graph"]).any()
    something = any(map(len, (events.ops, events.calls, events.ranges)))
    return events.trace.collector == "nsys" and something and not kernels


def import_errors(trace: Trace) -> int:
    """How often nsys says that it could not import what it had recorded."""
    if trace.diagnostics.is_empty():
        return 0  # the search alone takes a millisecond
    return int(trace.diagnostics["text"].str.contains(IMPORT_ERRORS).sum())


def _import_errors(events: Events) -> Iterator[Failed]:
    if errors := import_errors(events.trace):
        yield Failed(check=Check.IMPORT_ERRORS, count=errors, of=0)


def _unstamped(events: Events) -> Iterator[Failed]:
    found, of = events.unstamped, events.recorded
    if found and 100 * found >= UNSTAMPED_PCT * of:
        yield Failed(check=Check.UNSTAMPED, count=found, of=of)


def _incomplete(view: View) -> Iterator[Failed]:
    lost = lost_operations(view)
    if lost is not None:
        yield Failed(
            check=Check.INCOMPLETE,
            count=lost.launches,
            of=lost.of,
            start_ns=lost.start_ns,
            end_ns=lost.end_ns,
        )
