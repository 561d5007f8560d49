"""What may be changed in a replay, as declared by the caller."""

from dataclasses import dataclass
from typing import Final

KINDS: Final = {
    "sync": ("sync",),
    "alloc": ("alloc",),
    "copy": ("blocking_copy",),
    "all": ("sync", "alloc", "blocking_copy"),
}
"""The classes of calls (spec §3) that each kind of removal takes."""


@dataclass(frozen=True, kw_only=True)
class Removal:
    """Stalls that are not there any more.

    Attributes:
        kind: of `KINDS`.
        at: a source line, as tables print it, or a phase; None takes all.
    """

    kind: str
    at: str | None = None


@dataclass(frozen=True, kw_only=True)
class Changes:
    """All that is changed together; by default nothing.

    Attributes:
        removed: kinds of stalls to remove.
        removed_calls: single calls to remove: process, thread and start in ns, as in syncs.csv.
        graphs: phases whose launches become CUDA graphs.
        scaled: kernels by name, and the factor on their time.
        faster_host: phases, and the factor on the host's time in them.
        async_copies: copies that block the host do so no longer.
        no_profiler: the profiler's own work takes no time.
    """

    removed: tuple[Removal, ...] = ()
    removed_calls: tuple[tuple[int, int, int], ...] = ()
    graphs: tuple[str, ...] = ()
    scaled: tuple[tuple[str, float], ...] = ()
    faster_host: tuple[tuple[str, float], ...] = ()
    async_copies: bool = False
    no_profiler: bool = False
