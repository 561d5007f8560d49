"""What each thread of a torch.profiler trace ran: operators and Python functions, nested (spec
§17.3).
"""

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.kineto.columns import spans_of
from nsysflow.analysis.load.kineto.document import Event, frame_of, thread_of, unquoted
from nsysflow.analysis.schema import ID_BITS, ID_MASK

ThreadKeys = Mapping[tuple[object, object], int]
"""Thread keys by the pid and tid of the trace."""


_MOST_PID: Final = 1 << 63 - ID_BITS
"""The key of a thread has 64 bits."""


def thread_keys(written: Iterable[tuple[object, object]]) -> ThreadKeys:
    """A key for every thread, by its pid and tid. A tid that is not an OS tid (a pthread handle)
    becomes a small one.

    The main thread's tid stays equal to the pid, because that identifies the main thread.
    """
    pairs = {pair: (unquoted(pair[0]), unquoted(pair[1])) for pair in written}
    tids: dict[int, list[object]] = defaultdict(list)
    for pid, tid in sorted({*pairs.values()}, key=repr):
        if isinstance(pid, int) and abs(pid) < _MOST_PID:
            tids[pid].append(tid)
    keys: dict[tuple[object, object], int] = {}
    for pid, of_process in tids.items():
        real = {tid for tid in of_process if isinstance(tid, int) and 0 < tid <= ID_MASK}
        spare = (t for t in range(ID_MASK, 0, -1) if t not in real and t != pid)
        for tid in of_process:
            keys[pid, tid] = pid << ID_BITS | (tid if tid in real else next(spare))
    return {pair: keys[number] for pair, number in pairs.items() if number in keys}


def on_thread(event: Event, keys: ThreadKeys) -> tuple[int | None, int | None]:
    """The process and thread key of an event."""
    thread = keys.get(thread_of(event))
    return (None, None) if thread is None else (thread & ~ID_MASK, thread)


_FUNCTION: Final = re.compile(r"(.+)\((\d{1,9})\): (.*)", re.DOTALL)
"""A Python function: the file, the line of its definition, its name."""

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")

_STANDARD: Final = frozenset(sys.stdlib_module_names)


Span = tuple[int, int, bool, int, str]
"""When an operator or function ran: its start, its end with a minus, whether it is an operator, its
row, its name. Sorted, what is further in comes later."""


class Stacks:
    """Distinct stacks, each numbered: a frame, and the stack around it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int | None, str], int] = {}
        self._names: dict[str, str] = {}

    def number(self, around: int | None, name: str) -> int:
        """The number of the stack with the frame `name` inside the stack `around`."""
        name = self._names.get(name) or self._names.setdefault(name, _ADDRESS.sub("", name))
        return self._numbers.setdefault((around, name), len(self._numbers))

    def frames(self, used: pl.Series) -> pl.DataFrame:
        """`schema.FRAMES` of these stacks."""
        around = pl.Series([around for around, _ in self._numbers], dtype=pl.UInt32)
        frames = _parsed([name for _, name in self._numbers])
        rows, at, depth = [], pl.DataFrame({"stack": used, "at": used}), 0
        while len(at):
            opened = frames[at["at"]].with_columns(
                at["stack"], pl.lit(depth, pl.UInt32).alias("depth")
            )
            rows.append(opened.match_to_schema(schema.FRAMES))
            at = at.with_columns(around.gather(at["at"]).alias("at")).drop_nulls()
            depth += 1
        return pl.concat([schema.FRAMES.to_frame(), *rows])


def spans_of_threads(
    operators: Sequence[Event], functions: Sequence[Event], keys: ThreadKeys
) -> Mapping[int, list[Span]]:
    """The spans of each thread, sorted.

    Raises:
        OddEvent: an event has no usable time, thread or name.
    """
    spans: dict[int, list[Span]] = defaultdict(list)
    for is_operator, events in ((False, functions), (True, operators)):
        times = zip(*spans_of(events).get_columns(), strict=True)
        for row, (event, (start_ns, end_ns)) in enumerate(zip(events, times, strict=True)):
            thread = keys.get((event.pid, event.tid))
            if thread is not None and end_ns > start_ns:
                spans[thread].append((start_ns, -end_ns, is_operator, row, str(event.name)))
    for of_thread in spans.values():
        of_thread.sort()
    return spans


def running(spans: Mapping[int, Iterable[Span]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`schema.RUNNING` and `schema.FRAMES`, of `spans_of_threads`."""
    stacks = Stacks()
    rows = [
        (start_ns, end_ns, thread, stack)
        for thread, of_thread in spans.items()
        for start_ns, end_ns, stack in stretches(of_thread, stacks)
    ]
    rows_of_threads = frame_of(rows, schema.RUNNING)
    return rows_of_threads, stacks.frames(rows_of_threads["stack"].unique())


def stretches(spans: Iterable[Span], stacks: Stacks) -> Iterator[tuple[int, int, int]]:
    """Start, end and stack of the stretches in which the same span was the innermost one.

    Args:
        spans: those of one thread, sorted.
        stacks: gets the stacks that are met.
    """
    open_: list[tuple[int, int]] = []  # end and stack of those around, outermost first
    at_ns = 0
    for start_ns, minus_end_ns, _, _, name in spans:
        while open_ and open_[-1][0] <= start_ns:
            end_ns, stack = open_.pop()
            if end_ns > at_ns:
                yield at_ns, end_ns, stack
                at_ns = end_ns
        if open_ and start_ns > at_ns:
            yield at_ns, start_ns, open_[-1][1]
        at_ns = start_ns
        open_.append((-minus_end_ns, stacks.number(open_[-1][1] if open_ else None, name)))
    while open_:
        end_ns, stack = open_.pop()
        if end_ns > at_ns:
            yield at_ns, end_ns, stack
            at_ns = end_ns


def _parsed(names: list[str]) -> pl.DataFrame:
    """`file`, `line` and `function` of frames; of operators only `function`."""
    frames_by_name = {name: _frame(name) for name in dict.fromkeys(names)}
    columns = pl.Schema({name: schema.FRAMES[name] for name in ("file", "line", "function")})
    return frame_of((frames_by_name[name] for name in names), columns)


def _frame(name: str) -> tuple[str | None, int | None, str]:
    match = _FUNCTION.fullmatch(name)
    return (_located(match[1]), int(match[2]), match[3]) if match else (None, None, name)


def _located(file: str) -> str:
    """A file as other profilers write it: in a folder of libraries, if it is a library's."""
    top = re.split(r"[/\\]|\.py$", file, maxsplit=1)[0]
    if top in _STANDARD:
        return f"lib/python3/{file}"
    return f"site-packages/{file}" if top in _packages() else file


@cache
def _packages() -> frozenset[str]:
    """Packages that training programs import."""
    text = files("nsysflow.analysis.load.kineto").joinpath("packages.toml")
    return frozenset(tomllib.loads(text.read_text(encoding="utf-8"))["packages"])
