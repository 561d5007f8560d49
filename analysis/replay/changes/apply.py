"""A recorded program with changes applied to it."""

from dataclasses import replace

import polars as pl

from nsysflow.analysis.frames.intervals import Cover, laid, merge
from nsysflow.analysis.replay.changes.declared import Changes
from nsysflow.analysis.replay.changes.graphing import with_graphs
from nsysflow.analysis.replay.changes.host_time import with_cheaper_calls, with_less_work
from nsysflow.analysis.replay.changes.names import Names
from nsysflow.analysis.replay.changes.removing import blocking_copies, without_calls
from nsysflow.analysis.replay.dependencies.program import Program


def changed(names: Names, changes: Changes) -> Program:
    """The program with all changes: the host's time first, then its calls, then the GPU's.

    Args:
        names: of the recorded program.
        changes: what is different.

    Raises:
        UnknownName: a phase, source line, kernel or call is not in the report.
    """
    program, events = names.recorded.program, names.timeline.events
    axis = events.axis
    if changes.no_profiler:
        own = Cover(merge(laid(events.overhead, axis, "thread_no")))
        program = with_less_work(program, own, axis, factor=0)
        program = with_cheaper_calls(program, own, axis)
    for phase, factor in changes.faster_host:
        program = with_less_work(program, names.time_in(phase), axis, factor=factor)
    program = _without(program, names, changes)
    for phase in changes.graphs:
        waits = program.calls.filter(pl.col("after").is_not_null(), pl.col("class") != "launch")
        whole = names.graphed_time_in(phase, waits)
        program = with_graphs(program, names.instances(phase), whole, axis)
    return _scaled(program, names.factors(changes.scaled)) if changes.scaled else program


def _without(program: Program, names: Names, changes: Changes) -> Program:
    """Without the calls that a change removes. One that the replay counts as the host's work is
    taken out of that."""
    gone = [names.stalls(removal) for removal in changes.removed]
    if changes.async_copies:
        gone.append(blocking_copies(program))
    if changes.removed_calls:
        rows = names.calls(changes.removed_calls)
        nodes = names.recorded.node_of_call.gather(rows)
        gone.append(nodes.drop_nulls())
        events = names.timeline.events
        others = events.calls[rows.filter(nodes.is_null())]
        where = Cover(merge(laid(others, events.axis, "thread_no")))
        program = with_less_work(program, where, events.axis, factor=0)
    return without_calls(program, pl.concat(gone).unique()) if gone else program


def _scaled(program: Program, factors: pl.Series) -> Program:
    """With the time of each operation times its factor."""
    scaled = (pl.col("length_ns") * factors).round().cast(pl.Int64).alias("length_ns")
    return replace(program, ops=program.ops.with_columns(scaled))
