"""What may be changed in a replay, as declared by the caller."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

KINDS: Final = {
    "sync": ("sync",),
    "alloc": ("alloc",),
    "copy": ("blocking_copy",),
    "all": ("sync", "alloc", "blocking_copy"),
}
"""The classes of calls (spec §3) that each kind of removal takes."""


MOST_PRINTED: Final = 4
"""So many kernels are printed at most: their names are long, and the first ones matter most."""


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
        scaled: kernels by name, and the factor on their time; those that matter most come first.
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

    @classmethod
    def together(cls, each: Iterable[Self]) -> Self:
        """All of these changes at once; of two factors for one name, the smaller one counts."""
        every = list(each)
        return cls(
            removed=tuple(dict.fromkeys(one for of in every for one in of.removed)),
            removed_calls=tuple(dict.fromkeys(one for of in every for one in of.removed_calls)),
            graphs=tuple(dict.fromkeys(one for of in every for one in of.graphs)),
            scaled=_smallest(one for of in every for one in of.scaled),
            faster_host=_smallest(one for of in every for one in of.faster_host),
            async_copies=any(of.async_copies for of in every),
            no_profiler=any(of.no_profiler for of in every),
        )

    def options(self) -> Iterator[str]:
        """The changes as options of `nsysflow whatif`, word by word: of many kernels the first
        `MOST_PRINTED`. Single calls have none: they are in a file there."""
        for removal in self.removed:
            yield from ("--remove", f"{removal.kind}@{removal.at}" if removal.at else removal.kind)
        for phase in self.graphs:
            yield from ("--graph", phase)
        for kernel, factor in self.scaled[:MOST_PRINTED]:
            yield from ("--scale", f"{kernel}={factor:g}")
        for phase, factor in self.faster_host:
            yield from ("--faster-host", f"{phase}={factor:g}")
        if self.async_copies:
            yield "--async-copies"
        if self.no_profiler:
            yield "--no-profiler"


def _smallest(factors: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    """Each name with its smallest factor."""
    found: dict[str, float] = {}
    for name, factor in factors:
        found[name] = min(factor, found.get(name, factor))
    return tuple(found.items())
