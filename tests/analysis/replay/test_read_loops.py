"""Which calls stand in a loop that only reads values back."""

import polars as pl
import pytest

from nsysflow.analysis.replay.read_loops import acting_calls, read_loops
from tests.analysis.replay.replays import Row, call, kernel, launch, timeline_of

READ, WAIT = "cudaStreamSynchronize", "cudaDeviceSynchronize"

CALLS = {"w": READ, "s": WAIT, "a": "cudaMalloc"}
KERNELS = {"k": "reduce_kernel", "m": "sgemm_128x64", "t": "triton_poi_fused_0"}


def rows_of(calls: str) -> list[Row]:
    """Calls of one thread: kernels of `KERNELS` launched, and others of `CALLS`."""
    rows: list[Row] = []
    for place, letter in enumerate(calls):
        at = 100 * place
        if letter in CALLS:
            rows.append(call(at, at + 20, CALLS[letter]))
        else:
            ran = kernel(at + 7, at + 15, place + 1, name=KERNELS[letter])
            rows += [launch(at, at + 5, place + 1), ran]
    return rows


@pytest.mark.parametrize(
    ("calls", "going"),
    [
        ("kwkw", "...."),  # two reads are no loop
        ("kwkwkw", "KWKWKW"),
        ("wwwwk", "WWWW."),
        ("mkkkwkkwkwkkwk", "...KWKKWKWKKW."),  # before the first read as many as the fewest
        ("kkkkwkkkkwkkkkwkkkkw", "KKKKWKKKKWKKKKWKKKKW"),
        ("kwkwkwkwkkkkkwkwkwkw", "KWKWKWKW....KWKWKWKW"),  # five kernels part two loops
        ("kwkwkmwkwk", ".........."),
        ("kwkwktwkwk", ".........."),
        ("kwkwkswkwk", ".........."),
        ("kwkwkawkwk", ".........."),
        ("mwkwkwkw", ".WKWKWKW"),  # work before the first read stays
    ],
)
def test_what_goes_with_a_loop(calls: str, going: str) -> None:
    events = timeline_of(*rows_of(calls)).events
    reads = events.calls.filter(pl.col("name") == READ)["call"]
    loops = read_loops(acting_calls(events), reads)
    gone = {*loops["call"]}
    marks = "".join(letter.upper() if place in gone else "." for place, letter in enumerate(calls))
    assert marks == going
    assert loops["kernels"].sum() == marks.count("K")
