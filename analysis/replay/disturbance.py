"""The profiler's share of a recorded step, taken out of its program (spec §14.15, §16.8)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import polars as pl

from nsysflow.analysis.replay.replay import Program

LEAST_CALL_NS: Final = 1_000
"""What a call costs in any case."""

MOST_NS: Final = 50_000
"""The profiler takes no more of the host's time at a call: 10 to 37 us on H100s, 2026-11-25."""

NEAR: Final = 0.002
"""A replayed step this near to the plain one is near enough: plain ones differ by more."""

MOST_TRIES: Final = 12
"""Every other one halves what is left: 800 ns a call after all of them."""


def without_disturbance(
    program: Program, unrecorded_step_ns: int | None, step_ns_of: Callable[[Program], int]
) -> Program:
    """`program` with so much less of the host's time at each call that a step takes as long as in
    the same program without a profiler. What cannot be taken from the host is left.

    Args:
        program: as recorded.
        unrecorded_step_ns: a step without the profiler; None where it is not known, which changes
            nothing.
        step_ns_of: how long a step of a program takes.
    """
    if unrecorded_step_ns is None:
        return program
    quiet = with_cheaper_host(program, MOST_NS)
    least, slow_ns = 0, step_ns_of(program)
    most, fast_ns = MOST_NS, step_ns_of(quiet)
    wanted_ns = max(unrecorded_step_ns, fast_ns * (1 + NEAR))
    if slow_ns <= wanted_ns:
        return program
    for attempt in range(MOST_TRIES):
        # most steps get shorter in proportion, up to where the GPU is the limit: hence turns
        share = (slow_ns - wanted_ns) / (slow_ns - fast_ns) if attempt % 2 == 0 else 0.5
        less_ns = round(least + share * (most - least))
        tried = with_cheaper_host(program, less_ns)
        step_ns = step_ns_of(tried)
        if abs(step_ns - wanted_ns) <= NEAR * wanted_ns:
            return tried
        if step_ns > wanted_ns:
            least, slow_ns = less_ns, step_ns
        else:
            most, fast_ns, quiet = less_ns, step_ns, tried
    return quiet


def with_faster_host(program: Program, factor: float) -> Program:
    """`program` with the host's work and what its calls cost times `factor`, allocations apart."""
    work, cost = ((pl.col(name) * factor).round().cast(pl.Int64) for name in ("work_ns", "cost_ns"))
    allocates = pl.col("class") == "alloc"
    calls = program.calls.with_columns(
        work.alias("work_ns"), pl.when(allocates).then("cost_ns").otherwise(cost).alias("cost_ns")
    )
    return replace(program, calls=calls)


def with_cheaper_host(program: Program, less_ns: int) -> Program:
    """`program` with so much less of the host's time at each call: of its work before the call,
    then of what the call costs, of which `LEAST_CALL_NS` stay."""
    from_work = pl.min_horizontal(pl.col("work_ns").clip(lower_bound=0), less_ns)
    spare = (pl.col("cost_ns") - LEAST_CALL_NS).clip(lower_bound=0)
    from_cost = pl.min_horizontal(spare, less_ns - from_work)
    calls = program.calls.with_columns(
        (pl.col("work_ns") - from_work).alias("work_ns"),
        (pl.col("cost_ns") - from_cost).alias("cost_ns"),
    )
    return replace(program, calls=calls)
