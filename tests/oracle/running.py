"""What a thread ran innermost, instant by instant (spec §17.3)."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """An operator or a Python function of one thread."""

    start_ns: int
    end_ns: int
    is_operator: bool
    row: int
    name: str

    def rank(self) -> tuple[int, int, bool, int]:
        """Who started last; ties: the shorter, then an operator, then the later row."""
        return self.start_ns, -self.end_ns, self.is_operator, self.row


def innermost(spans: Iterable[Span], instant: int) -> Span | None:
    """The one that started last of those that run."""
    running = (span for span in spans if span.start_ns <= instant < span.end_ns)
    return max(running, key=Span.rank, default=None)


def stack_of(spans: list[Span], span: Span) -> tuple[str, ...]:
    """The names of its stack, innermost first: it, and the stack of the one around it."""
    before = [other for other in spans if other.rank() < span.rank()]
    around = innermost(before, span.start_ns)
    return span.name, *(stack_of(spans, around) if around else ())


def ran(spans: list[Span], instant: int) -> tuple[str, ...]:
    """The names of the stack that ran at an instant; none if nothing did."""
    found = innermost(spans, instant)
    return stack_of(spans, found) if found else ()
