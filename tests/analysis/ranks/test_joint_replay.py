"""Ranks replayed together: no rank goes on before the last one has come."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import nsysflow
from benchmarks.many_ranks.__main__ import Wanted, make_run
from benchmarks.many_ranks.simulated import Delay, Kind
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.run_saving import RunReplays
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.joint_replay import RunChange
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.replay.disturbance import with_cheaper_host
from tests.oracle.export import read_export
from tests.oracle.joint_replay import JointReplay
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.ranks import matched
from tests.oracle.replay import Replay
from tests.runs_of_ranks import kernels_in
from tests.tiny import AS_RECORDED

RANKS = 4


CHANGES: list[tuple[dict[int, int], list[int], float]] = [
    ({}, [], 1.0),
    ({0: 3_000}, [], 1.0),
    ({0: 50_000, 1: 50_000}, [], 0.5),
    ({0: 2_000}, [1], 1.0),
]
"""By report how much less each call takes, who is not awaited, the share of compute that is left
where the program is not known."""


def made(folder: Path, kind: Kind, *, tp: int) -> list[PlainTrace]:
    """The reports of a made run of which rank 1 is late."""
    delay = Delay(kind, rank=1, ns=2_000_000)
    make_run(folder, Wanted(ranks=RANKS, kernels=200, tp=tp, delay=delay, seed=tp))
    named = {
        f"rank{number}": read_export(folder / f"rank{number}.sqlite") for number in range(RANKS)
    }
    return [  # the oracle of the replay does not know events
        replace(trace, report=name, event_records=(), waits=()) for name, trace in named.items()
    ]


def run_of(traces: Sequence[PlainTrace], known: int = RANKS) -> RunReplays:
    """The run of which the programs of the first reports are known."""
    options = replace(AS_RECORDED, skip=1)
    named = [nsysflow.analyze(to_trace(trace), options) for trace in traces]
    run = RunReplays.of(
        [JudgedReport(one) for one in named[:known]], Ranks.of([digest(one) for one in named])
    )
    assert run is not None
    return run


def trace_times(ops: pl.DataFrame) -> tuple[list[int], list[int]]:
    """The starts and ends of operations, as the oracle has them."""
    return ops["start_ns"].to_list(), ops["end_ns"].to_list()


@pytest.mark.parametrize(("kind", "tp", "known"), [("compute", 1, RANKS), ("host", 2, 2)])
def test_ranks_together_agree_with_the_oracle(
    kind: Kind, tp: int, known: int, tmp_path: Path
) -> None:
    traces = made(tmp_path, kind, tp=tp)
    run = run_of(traces, known)
    oracle = JointReplay(
        matched(kernels_in(run.ranks.matched.digests), RANKS),
        {number: Replay(trace) for number, trace in enumerate(traces[:known])},
    )
    programs = [one.names.recorded.program for one in run.each]
    for less_ns, unawaited, compute in CHANGES:
        change = RunChange(
            unawaited=frozenset(unawaited), compute=dict.fromkeys(range(RANKS), compute)
        )
        now = [with_cheaper_host(each, less_ns.get(n, 0)) for n, each in enumerate(programs)]
        expected = oracle.replay(less_ns, unawaited, compute)
        times = [of.ops for of in run.joint.replay(now, change)]
        assert [trace_times(of) for of in times] == [expected[n] for n in range(known)]
    # if nothing is changed they do what they did
    unchanged = run.joint.replay(programs, RunChange(compute={}))
    assert [trace_times(of.ops) for of in unchanged] == [trace_times(one.ops) for one in run.each]
    calls = [trace_times(of.calls) for of in unchanged]
    assert calls == [trace_times(program.calls) for program in programs]
