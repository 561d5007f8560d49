"""Rows whose times are outside the recording: the epoch of a clock, a -1, an overflow.

One of them makes a report look decades long, and an `Axis` has no room for ten such tracks.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

CLOCK_JUMP_NS: Final = 7 * 86_400 * 10**9
"""Times further apart than 7 days are a clock jump (spec §12)."""

_PLACES: Final = 1 << 63
_PATHS_A_NAME: Final = 16
"""At most this many paths end in one range name. It is a guess; real reports have fewer."""


def without_outliers(frames: Mapping[str, pl.DataFrame]) -> tuple[dict[str, pl.DataFrame], int]:
    """The rows that an `Axis` has room for, and how many were left out.

    Rows within 7 days of the middle row stay, and all rows if there is room for them.

    Args:
        frames: `operations`, `calls`, `ranges` and `overhead`, without negative lengths.
    """
    times = [frame[name] for frame in frames.values() for name in ("start_ns", "end_ns")]
    known = [t for column in times for t in (column.min(), column.max()) if isinstance(t, int)]
    apart_ns = max(known) - min(known) if known else 0
    if apart_ns <= CLOCK_JUMP_NS:
        return dict(frames), 0
    reach_ns = max(CLOCK_JUMP_NS, _PLACES // _tracks(frames) // 2)
    if apart_ns <= reach_ns:
        return dict(frames), 0
    starts = pl.concat([frame["start_ns"] for frame in frames.values()]).sort()
    middle_ns = int(starts[len(starts) // 2])
    near = _between(middle_ns - reach_ns, middle_ns + reach_ns)
    kept = {name: frame.filter(near) for name, frame in frames.items()}
    return kept, sum(len(frames[name]) - len(kept[name]) for name in frames)


def _tracks(frames: Mapping[str, pl.DataFrame]) -> int:
    """The most tracks that the analysis puts on one axis: pairs of threads, or paths on devices."""
    threads = pl.concat([frames[name]["thread"] for name in ("calls", "ranges", "overhead")])
    paths = _PATHS_A_NAME * frames["ranges"]["name"].n_unique() + 1
    devices = frames["operations"].select("process", "device").n_unique()
    return max(threads.n_unique() ** 2, paths * devices, 1)


def _between(low_ns: int, high_ns: int) -> pl.Expr:
    # compare with bounds, since a distance may not fit into 64 bits
    low, high = max(low_ns, -_PLACES), min(high_ns, _PLACES - 1)
    return pl.all_horizontal(
        pl.col(name).is_between(pl.lit(low, pl.Int64), pl.lit(high, pl.Int64)).fill_null(value=True)
        for name in ("start_ns", "end_ns")
    )
