"""A loop that waits for batches of another process: they come when they came (spec §14.2)."""

from dataclasses import replace
from functools import partial
from itertools import count

import pytest

from nsysflow.analysis.options import Options
from nsysflow.analysis.replay.changes import Changes
from nsysflow.analysis.replay.disturbance import LEAST_COST, MOST_COST, without_cost
from nsysflow.analysis.replay.replay import recorded, replay
from nsysflow.analysis.replay.whatif import whatif
from nsysflow.analysis.selection.timeline import Timeline
from tests.oracle.model import LoaderTime, PlainTrace, to_trace
from tests.oracle.replay import Replay
from tests.tiny import AS_RECORDED, Row, kernel, launch, opened, plain_of, sample, timeline_of

MS = 1_000_000
PERIOD = 20 * MS
STEPS = 8
LAUNCHES = 10


def loop(*innermost: str, name: str = "data", batch_ms: int = 9) -> list[Row]:
    """Steps of 20 ms: of launches 1 ms apart, of kernels, and of data, in which samples of 1 kHz
    find these functions in turn."""
    rows: list[Row] = []
    numbers = count(1)
    for begun in range(0, STEPS * PERIOD, PERIOD):
        rows.append(opened(begun, begun + PERIOD, "step"))
        loaded = begun + batch_ms * MS
        rows.append(opened(begun + 100, loaded, name))
        for at in range(begun, begun + PERIOD, MS):
            function = innermost[at // MS % len(innermost)] if at < loaded else "forward"
            rows.append(sample(at + 5_000, function, "train"))
        for start in range(loaded + 100_000, loaded + LAUNCHES * MS, MS):
            number = next(numbers)
            rows += [launch(start, start + 10_000, number)]
            rows += [kernel(start + 10_000, start + 60_000, number)]
    return rows


WITHOUT_DATA = Changes(faster_host=(("step/data", 0.0),))


def agreed(model: PlainTrace) -> Timeline:
    """The trace. Its replays, as recorded and without what recording costs, are the oracle's."""
    timeline, oracle = Timeline(to_trace(model), Options()), Replay(model)
    program = recorded(timeline).program
    assert replay(program).ops["end_ns"].to_list() == [op.end_ns for op in oracle.ops]
    for cost in (LEAST_COST, MOST_COST):
        quiet = replay(without_cost(program, cost, traced=program.calls["pred"].is_null()))
        assert quiet.ops["end_ns"].to_list() == oracle.ends_without_cost(
            cost.permille, 0, cost.gap_ns, ()
        )
    return timeline


@pytest.mark.parametrize(
    ("rows", "plain_ms", "without_ms"),
    [
        (loop("acquire"), 20, 9.267),
        (loop("_poll", "get", "decode"), 20, 9.267),  # two thirds of it are waits
        (loop("decode"), 17.067, 8.067),  # the loop's own process makes the batch: that is work
        (loop("decode", "decode", "poll"), 17.067, 8.067),
        (loop("acquire", name="sleep"), 17.067, None),
        (loop("acquire", batch_ms=0), 17.067, None),
    ],
    ids=["waits", "waits-mostly", "works", "works-mostly", "no-data", "empty"],
)
def test_a_batch_comes_when_it_came(
    rows: list[Row], plain_ms: float, without_ms: float | None
) -> None:
    """The loop's host is made faster by what recording costs: with batches of another process, the
    step takes as long as before."""
    timeline = agreed(plain_of(*rows))
    assert whatif(timeline, Changes()).before.step_ns == pytest.approx(plain_ms * MS, rel=0.001)
    if without_ms is not None:
        after_ns = whatif(timeline, WITHOUT_DATA).after.step_ns
        assert after_ns == pytest.approx(without_ms * MS, rel=0.001)


@pytest.mark.parametrize(
    ("busy_ms", "most", "plain_ms"), [(9, 1, 18.267), (11, 1, 20), (11, 2, 18.267)]
)
def test_a_batch_of_workers_that_are_idle_comes_when_it_is_asked_for(
    busy_ms: int, most: int, plain_ms: float
) -> None:
    """One worker, which makes a batch in each step of 20 ms; behind 100 ms there are `most`."""
    model = plain_of(*loop("acquire"))
    batches = tuple(
        LoaderTime(
            process=model.calls[0].process,
            loader=0,
            worker=0,
            start_ns=end_ns - busy_ms * MS,
            fetched_ns=None,
            end_ns=end_ns,
            workers=most if end_ns > 100 * MS else 1,
        )
        for end_ns in range(11 * MS, STEPS * PERIOD, PERIOD)
    )
    timeline = agreed(replace(model, loader_times=batches))
    assert whatif(timeline, Changes()).before.step_ns == pytest.approx(plain_ms * MS, rel=0.001)
    without = whatif(timeline, WITHOUT_DATA).after.step_ns
    assert without == pytest.approx(9.267 * MS, rel=0.001)


def fed(batch_ms: float, *, workers: int = 2, step_ms: int = 20) -> PlainTrace:
    """The loop, which finds each batch ready. Its workers take so long for one of theirs, but for
    the last worker, which takes half."""
    model = plain_of(*loop("forward", batch_ms=1))
    made = partial(LoaderTime, model.calls[0].process, 0, workers=workers)
    waits = [
        made(None, at + 200_000, None, at + 900_000) for at in range(0, STEPS * PERIOD, PERIOD)
    ]
    batches = [
        made(worker, at, None, at + round(batch_ms * MS / (1 + (worker == workers - 1 > 0))))
        for worker in range(workers)
        for at in range(0, STEPS * PERIOD, step_ms * workers * MS)
    ]
    return replace(model, loader_times=(*waits, *batches))


@pytest.mark.parametrize(
    ("model", "plain_ms"),
    [
        (fed(10), 17.067),  # 5 ms a batch: the loop never waits
        (fed(38), 19),
        (fed(38, workers=4), 17.067),
        (fed(60), 20),  # no later than recorded
        (fed(19, workers=1), 19),
    ],
    ids=["quick", "two", "four", "slow", "one"],
)
def test_workers_have_no_batch_sooner_than_the_slowest_makes_it(
    model: PlainTrace, plain_ms: float
) -> None:
    """Recording made the loop so slow that it never waits; by itself it takes 17.067 ms, of which
    the range of data is 1."""
    timeline = agreed(model)
    assert whatif(timeline, Changes()).before.step_ns == pytest.approx(plain_ms * MS, rel=0.001)
    ready_ns = whatif(timeline, WITHOUT_DATA).after.step_ns
    assert ready_ns == pytest.approx(16.067 * MS, rel=0.001)
    graph_ns = whatif(timeline, Changes(graphs=("step",))).after.step_ns or 0
    assert (graph_ns >= 0.99 * plain_ms * MS) == (plain_ms > 17.067)


@pytest.mark.parametrize(
    ("wait_ms", "ready_ms"),
    [(3, 14), (0.5, 17), (None, 17)],
)
def test_plain_steps_that_wait_are_as_long_as_their_batches_take(
    wait_ms: float | None, ready_ms: float
) -> None:
    """A plain step took 18 ms, and waited so much of it, whatever recorded workers take."""
    wait_ns = None if wait_ms is None else round(wait_ms * MS)
    options = Options(unrecorded_step_ns=18 * MS, unrecorded_wait_ns=wait_ns)
    timeline = Timeline(to_trace(fed(10)), options)
    assert whatif(timeline, Changes()).before.step_ns == pytest.approx(18 * MS, rel=0.005)
    without = whatif(timeline, WITHOUT_DATA).after.step_ns
    assert without == pytest.approx(ready_ms * MS, rel=0.005)


def test_a_graph_makes_no_batch_come_earlier() -> None:
    timeline = timeline_of(*loop("acquire"), options=AS_RECORDED)
    after_ns = whatif(timeline, Changes(graphs=("step",))).after.step_ns
    assert after_ns == pytest.approx(20 * MS, rel=0.1)
