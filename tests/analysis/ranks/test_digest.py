"""What travels of a report: small, and enough to judge its run."""

import pickle

import nsysflow
from nsysflow.analysis.ranks.ranks import Ranks
from tests.analyses import analysed, any_trace
from tests.oracle.exchanged import exchanged
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report

SMALL = 100
"""A digest is small if it takes at most three times so many bytes a kernel."""


@any_trace
def test_exposed_times_up_to_each_kernel_agree_with_the_oracle(trace: PlainTrace) -> None:
    found = nsysflow.analyze(to_trace(trace)).digest.collectives
    expected = exchanged(Report(trace))
    columns = [*expected[0]] if expected else []
    order = ["device", "start_ns", "end_ns", "stream", "name", "process"]
    rows = found.select(columns).sort(order).to_dicts() if columns else []
    assert found.height == len(expected)
    assert rows == sorted(expected, key=lambda row: tuple(row[name] for name in order))


def test_exposed_communication_within_the_kernels_is_all_there_is() -> None:
    analysis = analysed("ddp-bucketed-rank0")
    kernels = analysis.digest.collectives
    within = kernels["comm_until_ns"] - kernels["comm_before_ns"]
    assert within.sum() == analysis.accounting["comm_exposed_ns"].sum()


def test_a_digest_travels_and_stays_small() -> None:
    digest = analysed("ddp-bucketed-rank0").digest
    sent = pickle.dumps(digest)
    assert len(sent) < 20_000 + SMALL * 3 * digest.collectives.height
    there = pickle.loads(sent)
    assert Ranks.of([there, digest]).arrivals.equals(Ranks.of([digest, there]).arrivals)
    assert not hasattr(there, "trace")
    assert there.steps["judged"].to_list() == [True] * 5
