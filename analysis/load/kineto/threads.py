"""Keys of the threads in a torch.profiler trace, as nsys would number them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from nsysflow.analysis.frames.nsys_ids import ID_BITS, ID_MASK
from nsysflow.analysis.load.kineto.document import Event, OddEvent, unquoted

ThreadKeys = Mapping[tuple[object, object], int]
"""Thread keys by the pid and tid of the trace."""


def thread_keys(events: Iterable[Event]) -> ThreadKeys:
    """A key for every thread. A tid that is not an OS tid (a pthread handle) becomes a small one.

    The main thread's tid stays equal to the pid, because that identifies the main thread.
    """
    written = {_thread(event) for event in events}
    pairs = {pair: (unquoted(pair[0]), unquoted(pair[1])) for pair in written}
    tids: dict[int, list[object]] = defaultdict(list)
    for pid, tid in sorted({*pairs.values()}, key=repr):
        if isinstance(pid, int):
            tids[pid].append(tid)
    keys: dict[tuple[object, object], int] = {}
    for pid, of_process in tids.items():
        real = {tid for tid in of_process if isinstance(tid, int) and 0 < tid <= ID_MASK}
        spare = (t for t in range(ID_MASK, 0, -1) if t not in real and t != pid)
        for tid in of_process:
            keys[pid, tid] = pid << ID_BITS | (tid if tid in real else next(spare))
    return {pair: keys[number] for pair, number in pairs.items() if number in keys}


def _thread(event: Event) -> tuple[int | str, int | str]:
    """An event's pid and tid as written: numbers, or words such as a GPU's `stream 7`.

    Raises:
        OddEvent: one is missing.
    """
    if type(event.pid) in (int, str) and type(event.tid) in (int, str):
        return event.pid, event.tid
    raise OddEvent(f"no pid or no tid ({event.name!r})")


def on_thread(event: Event, keys: ThreadKeys) -> tuple[int | None, int | None]:
    """The process and thread key of an event."""
    thread = keys.get(_thread(event))
    return (None, None) if thread is None else (thread & ~ID_MASK, thread)
