"""Which thread of which process each track of a trace belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.pftrace.names import Track
from nsysflow.analysis.schema import ID_BITS, ID_MASK

_OWNERS: Final = pl.Schema({"track": pl.UInt64(), "process": pl.Int64(), "of_track": pl.Int64()})


@dataclass(frozen=True)
class Threads:
    """The owners of tracks.

    Attributes:
        owners: `track`, and the keys of its `process` and of its thread (`of_track`); null where it
            has none.
        named: `schema.THREADS`.
    """

    owners: pl.DataFrame
    named: pl.DataFrame

    def placed(self, track: pl.Series, tid: pl.Series | None = None) -> pl.DataFrame:
        """The `process` and the `thread` of events on these tracks; the thread with this `tid`
        where that is known."""
        rows = track.alias("track").to_frame()
        rows = rows.join(self.owners, on="track", how="left", maintain_order="left")
        own = pl.col("of_track")
        if tid is not None:
            own = pl.coalesce(pl.col("process") + pl.lit(tid & ID_MASK), own)
        return rows.select("process", own.alias("thread"))


def threads_of(tracks: Mapping[int, Track]) -> Threads:
    """The owners of these tracks."""
    pids = inherited(tracks, {number: track.pid for number, track in tracks.items()})
    tids = inherited(tracks, {number: track.tid for number, track in tracks.items()})
    rows, named = [], {}
    for number, track in tracks.items():
        pid, tid = pids[number], tids[number]
        process = None if pid is None else (pid & ID_MASK) << ID_BITS
        thread = None if process is None or tid is None else process | tid & ID_MASK
        rows.append((number, process, thread))
        if thread is not None and track.tid is not None and track.title:
            named[thread] = (process, thread, track.title)
    return Threads(
        owners=pl.DataFrame(rows, _OWNERS, orient="row"),
        named=pl.DataFrame(
            [named[thread] for thread in sorted(named)], schema.THREADS, orient="row"
        ),
    )


def inherited(tracks: Mapping[int, Track], own: Mapping[int, int | None]) -> dict[int, int | None]:
    """What each track has itself, or the nearest of those around it. A track that is around itself
    has nothing."""
    found: dict[int, int | None] = {}
    for number in tracks:
        path: dict[int, None] = {}
        while number in tracks and number not in found and number not in path:
            path[number] = None
            number = number if own[number] is not None else tracks[number].parent
        value = own.get(number) if number in path else found.get(number)
        found.update(dict.fromkeys(path, value))
    return found
