"""One event of a torch.profiler trace: its time, its thread, its numbers.

Torch writes ids as numbers; traces that went through another program may have them as digits
between quotes.
"""

import re
from decimal import Decimal
from typing import Any, Final

Event = dict[str, Any]
"""One element of `traceEvents`, as JSON has it."""

_DIGITS: Final = re.compile(r"-?[0-9]{1,20}")


class OddEvent(Exception):
    """An event is not as torch.profiler writes it."""


def _time_ns(event: Event, key: str) -> int:
    """A time in microseconds, exactly as nanoseconds."""
    value = event.get(key)
    if not isinstance(value, (int, Decimal)) or not -(2**53) < value < 2**53:
        raise OddEvent(f"{key!r}: {value!r}, not a time in microseconds")
    return int(value * 1000)


def span_ns(event: Event) -> tuple[int, int]:
    """When it starts and ends, in nanoseconds.

    Raises:
        OddEvent: it has no time in microseconds.
    """
    start = _time_ns(event, "ts")
    return start, start + _time_ns(event, "dur")


def args_of(event: Event) -> Event:
    """What is said of its kind; nothing where that is no object."""
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def int_of(value: object) -> int | None:
    """An id or a size; None for anything else.

    Raises:
        OddEvent: it is too large for one.
    """
    found = _unquoted(value)
    if not isinstance(found, int):
        return None
    if not -(2**63) <= found < 2**63:
        raise OddEvent("a number that takes more than 63 bits")
    return found


def thread_of(event: Event) -> tuple[object, object]:
    """Its pid and tid: numbers, or words as a GPU's `stream 7`.

    Raises:
        OddEvent: one is missing.
    """
    pair = _unquoted(event.get("pid")), _unquoted(event.get("tid"))
    if not all(isinstance(part, (int, str)) for part in pair):
        raise OddEvent(f"no pid or no tid ({event.get('name')!r})")
    return pair


def _unquoted(value: object) -> object:
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value
