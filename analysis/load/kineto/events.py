"""The events of a trace by category. Calls and GPU operations become columns, a part at a time, so
that few of these events are in memory. Other events stay objects.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import polars as pl

from nsysflow.analysis.load.kineto.columns import Places
from nsysflow.analysis.load.kineto.document import (
    CALLS,
    NOTHING,
    ON_GPU,
    Element,
    Event,
    OddEvent,
    lacks,
)
from nsysflow.analysis.load.kineto.memory import CHANGED, FAILED
from nsysflow.analysis.load.kineto.operators import BACKWARD_LINK
from nsysflow.analysis.load.kineto.work import rows_by_category

_RENAMED: Final = {
    "operator": "cpu_op",
    "runtime": "cuda_runtime",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
}
"""Categories in the first versions of Kineto, which also capitalised all of them."""

_TORCHS_RANGE: Final = re.compile(
    r"(?:ProfilerStep|enumerate\(DataLoader\)|Optimizer\.(?:step|zero_grad))#"
)
"""Ranges that torch itself opens. The first versions of Kineto call them operators."""

_MOST: Final = 1 << 13
"""So many events of a category become columns at a time."""


_KEPT: Final = ("cpu_op", "python_function", "user_annotation", "cuda_sync")
_BESIDE: Final = ("thread_name", "counter", "memory", BACKWARD_LINK)
"""Categories of events that are kept: with a duration, and without."""

_WITHOUT_ARGS: Final = ("python_function", "user_annotation", BACKWARD_LINK)
"""Of these no argument is used."""


class Events:
    """The events of a trace. Calls and operations without a time, a thread or a GPU are left out.

    Attributes:
        places: the number of each pid and tid of a call.
        counts: how many events there are, by category.
    """

    def __init__(self) -> None:
        self.places = Places()
        self.counts: Counter[str] = Counter()
        self._makers = rows_by_category(self.places)
        self._waiting: dict[str, list[Event]] = defaultdict(list)
        self._parts: dict[str, list[pl.DataFrame]] = defaultdict(list)
        self._kept: dict[str, list[Event]] = defaultdict(list)
        self._left_out: Counter[tuple[str, str]] = Counter()

    def add(self, elements: Iterable[Element]) -> None:
        """Take the events among the elements of a trace."""
        for category, events in _by_category(elements).items():
            self.take(category, events)

    def take(self, category: str, events: Sequence[Event]) -> None:
        """Take events of a category."""
        self.counts[category] += len(events)
        if category in self._makers:
            waiting = self._waiting[category]
            waiting += events
            full = len(waiting) - len(waiting) % _MOST
            for at in range(0, full, _MOST):
                self._make(category, waiting[at : at + _MOST])
            del waiting[:full]
        elif category in (*_KEPT, *_BESIDE):
            with_args = category not in _WITHOUT_ARGS
            self._kept[category] += [_copied(event, with_args=with_args) for event in events]

    def _make(self, category: str, events: Sequence[Event]) -> None:
        columns, make = self._makers[category]
        try:
            rows = make(events)
        except OddEvent:  # most traces have none, so events are looked at one by one only here
            events = self._usable(category, events)
            rows = make(events) if events else columns.to_frame()
        self._parts[category].append(rows.select(*columns).cast(columns, strict=False))

    def _usable(self, category: str, events: Sequence[Event]) -> list[Event]:
        lacking = [lacks(category, event) for event in events]
        self._left_out.update((category, lack) for lack in lacking if lack)
        return [event for event, lack in zip(events, lacking, strict=True) if not lack]

    def rows(self, category: str) -> pl.DataFrame:
        """What the calls, or operations, of a category say; a number that does not fit its column
        is null."""
        columns, _ = self._makers[category]
        if waiting := self._waiting.pop(category, []):
            self._make(category, waiting)
        return pl.concat([columns.to_frame(), *self._parts[category]])

    def kept(self, category: str) -> list[Event]:
        """The events of a category that stay objects."""
        return self._kept[category]

    def leave_out(self) -> list[str]:
        """Leave out the kept events that have no time or no thread, too. Returns how many events
        were left out in all, by category and reason.

        Raises:
            OddEvent: no call has, or nothing that a GPU ran: idle time would be wrong.
        """
        for category, events in self._kept.items():
            self._kept[category] = self._usable(category, events)
        order = [*self.counts]
        left_out = sorted(self._left_out.items(), key=lambda each: order.index(each[0][0]))
        for what, needed in (("calls", CALLS), ("operations of GPUs", ON_GPU)):
            all_ = sum(self.counts[category] for category in needed)
            lost = [(lack, count) for (category, lack), count in left_out if category in needed]
            if all_ and sum(count for _, count in lost) == all_:
                raise OddEvent(f"{lost[0][0]}, and none of its {all_} {what} can be used")
        return [
            f"{count} of {self.counts[category]} {category} ({lack})"
            for (category, lack), count in sorted(left_out, key=lambda each: -each[1])
        ]

    @property
    def odd(self) -> bool:
        """Whether calls or operations were left out."""
        return bool(self._left_out)


def _by_category(elements: Iterable[Element]) -> Mapping[str, list[Event]]:
    """The events with a duration by category, those that name threads as `thread_name`, values of
    counters as `counter`, those at which memory changed, or could not be had, as `memory`, and the
    ends of flows to the backward pass."""
    events: dict[str, list[Event]] = defaultdict(list)
    written: dict[str, list[Event]] = defaultdict(list)
    for event in elements:
        if not isinstance(event, Event):
            continue
        if event.ph == "X":
            own = event.cat == "Operator" and _TORCHS_RANGE.match(str(event.name))
            written["user_annotation" if own else str(event.cat)].append(event)
        elif event.name == "thread_name":
            events["thread_name"].append(event)
        elif event.ph == "C":
            events["counter"].append(event)
        elif event.name in (CHANGED, FAILED):
            events["memory"].append(event)
        elif event.cat == BACKWARD_LINK:
            events[BACKWARD_LINK].append(event)
    for category, of_category in written.items():
        plain = category.lower()
        events[_RENAMED.get(plain, plain)] += of_category
    return events


def _copied(event: Event, *, with_args: bool) -> Event:
    """The event without the text that it was read from."""
    event.ts, event.dur = event.ts.copy(), event.dur.copy()
    event.args = event.args.copy() if with_args else NOTHING
    return event
