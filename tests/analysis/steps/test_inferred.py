"""Steps that are inferred from repeating kernels."""

from dataclasses import replace
from itertools import pairwise
from random import Random
from statistics import median
from typing import Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.timeline import Timeline
from nsysflow.analysis.steps.inferred import INFERRED_STEPS, infer_steps
from nsysflow.base.errors import SelectionError
from tests.analyses import EXAMPLES, analysed, loaded, rows_of
from tests.analysis.steps.programs import (
    INPUT,
    LEAST_STEPS,
    LOAD,
    LOOPING,
    READ,
    WITHOUT_LOOP,
    Launched,
    decoding_pass,
    forward,
    grouped_pass,
    kernels,
    layers,
    looping,
    trace_of_program,
    training_step,
    without_loop,
)
from tests.oracle.inferred import inferred_loops
from tests.oracle.model import PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.run import run
from tests.oracle.strategies import several, traces, traces_with_graphs
from tests.reports import ROOT
from tests.tiny import AUTOGRAD

SEEDS: Final = range(2)
FEW: Final = settings(max_examples=max(1, EXAMPLES // 4), suppress_health_check=list(HealthCheck))


def inferred(trace: PlainTrace) -> pl.DataFrame:
    """The steps that are inferred for a trace."""
    return infer_steps(Timeline(to_trace(trace), Options()).events)


def by_oracle(trace: PlainTrace) -> list[tuple[int, int, int, int, bool, str]]:
    """The same from the oracle."""
    return [
        (process, step.thread, step.start_ns, step.end_ns, not step.cut_off, name)
        for process, loops in sorted(inferred_loops(Report(trace)).items())
        for name, steps in loops.items()
        for step in steps
    ]


@pytest.mark.parametrize("kind", LOOPING)
def test_each_step_of_a_loop_is_found(kind: str) -> None:
    for seed in SEEDS:
        random = Random(f"{kind} {seed}")
        count = random.randint(LEAST_STEPS.get(kind, 5), 60)
        steps = inferred(trace_of_program(looping(random, kind, count)))
        assert len(steps) == count, seed


@pytest.mark.parametrize("kind", WITHOUT_LOOP)
def test_no_step_is_invented_where_nothing_loops(kind: str) -> None:
    for seed in SEEDS:
        program = without_loop(Random(f"{kind} {seed}"), kind)
        assert inferred(trace_of_program(program)).is_empty(), seed


@FEW
@given(st.sampled_from((*LOOPING, *WITHOUT_LOOP)), st.randoms(use_true_random=False))
def test_the_oracle_infers_the_same_steps_of_programs(kind: str, random: Random) -> None:
    is_loop = kind in LOOPING
    program = (
        looping(random, kind, LEAST_STEPS.get(kind, 0) + random.randint(2, 12))
        if is_loop
        else without_loop(random, kind)
    )
    first, last = sorted((random.randint(0, len(program)), random.randint(0, len(program))))
    trace = trace_of_program(program[first:] if random.random() < 0.5 else program[first:last])
    assert inferred(trace).rows() == by_oracle(trace)


@FEW
@given(st.lists(st.sampled_from(LOOPING), min_size=2, max_size=3), st.randoms())
def test_the_oracle_infers_the_same_other_loops(kinds: list[str], random: Random) -> None:
    program = [one for kind in kinds for one in looping(random, kind, random.randint(4, 24))]
    trace = trace_of_program(program)
    assert inferred(trace).rows() == by_oracle(trace)


@FEW
@given(several(st.one_of(traces(), traces_with_graphs())))
def test_the_oracle_infers_the_same_steps_of_random_traces(trace: PlainTrace) -> None:
    assert inferred(trace).rows() == by_oracle(trace)


def test_a_step_that_the_recording_cuts_off_is_no_typical_one() -> None:
    step = training_step()
    cut = trace_of_program([*step * 8, *step[: len(step) // 2]])
    analysis = nsysflow.analyze(to_trace(cut))
    assert analysis.steps["kind"].cast(pl.String).to_list()[-2:] == ["steady", "cut-off"]


def test_three_steps_are_enough_and_two_are_not() -> None:
    assert len(inferred(trace_of_program(training_step() * 3))) == 3
    assert inferred(trace_of_program(training_step() * 2)).is_empty()


def test_a_value_read_now_and_then_makes_no_longer_steps_of_a_loop_that_does_not_vary() -> None:
    passes = [forward() for _ in range(120)]
    program = [one for at, each in enumerate(passes) for one in [*each, *[READ] * (at % 40 == 0)]]
    trace = trace_of_program(program)
    assert len(inferred(trace)) == len(passes)
    assert inferred(trace).rows() == by_oracle(trace)


def test_passes_through_layers_are_steps_from_twenty_on() -> None:
    passes = [one for token in range(20) for one in decoding_pass(token, 6)]
    start_up = kernels("normal", "fill")
    assert len(inferred(trace_of_program([*start_up, *passes]))) == 20
    assert inferred(trace_of_program([*start_up, *passes[: len(passes) * 19 // 20]])).is_empty()


def test_passes_without_layers_are_steps_from_fifty_on() -> None:
    sweep = kernels("gather", "flux", "limit", "update", "reduce", "scatter")
    assert len(inferred(trace_of_program([*kernels("fill"), *sweep * 50]))) == 50
    assert inferred(trace_of_program([*kernels("fill"), *sweep * 49])).is_empty()
    assert inferred(trace_of_program([*kernels("fill"), *sweep[:4] * 60])).is_empty()


def test_passes_that_change_often_are_none() -> None:
    """Each of four batches is so many time steps, and a few other kernels."""
    time_steps = [*layers(5, "cell"), *kernels("hidden_state")] * 25
    batches = [*time_steps, *kernels("head", "softmax", "argmax", "gather")] * 4
    assert inferred(trace_of_program([*kernels("fill"), *batches[:-4]])).is_empty()


@pytest.mark.parametrize(
    ("every", "sampled", "steps"),
    [
        pytest.param(20, 2, 205, id="now and then"),
        pytest.param(20, 5, 0, id="with more kernels"),
        pytest.param(12, 2, 0, id="as a head after a dozen groups of layers"),
    ],
)
def test_passes_with_layers_may_differ_slightly_now_and_then(
    every: int, sampled: int, steps: int
) -> None:
    """A simulation that samples its field after so many steps."""
    step = [*layers(6, "stage"), *kernels("sum", "scale")]
    sampling = [*step * every, *kernels(*(f"sample_{at}" for at in range(sampled)))]
    trace = trace_of_program([*kernels("fill"), *sampling * 10, *step * 5])
    assert len(inferred(trace)) == steps
    assert inferred(trace).rows() == by_oracle(trace)


def test_what_other_kernels_follow_is_no_loop_of_passes() -> None:
    time_step = [*layers(6, "forward"), *kernels("hidden_state")]
    assert inferred(trace_of_program(time_step * 40 + kernels("head"))).is_empty()
    assert len(inferred(trace_of_program(time_step * 40 + [READ]))) == 40


def test_time_steps_that_are_undone_are_no_passes() -> None:
    undone = [*layers(6, "backward", thread=AUTOGRAD), *kernels("gradient", thread=AUTOGRAD)]
    assert inferred(trace_of_program([*kernels("head"), *undone * 40])).is_empty()


def test_updates_tell_steps_before_passes_do() -> None:
    found = names_of(*training_step() * 12, *grouped_pass(4) * 25)
    assert found == [("step", 12), ("loop 1", 25)]


def test_the_layers_of_one_pass_that_begins_with_a_layer_are_no_steps() -> None:
    layer = kernels(*(f"of_layer_{number}" for number in range(30)))
    assert inferred(trace_of_program([*layer * 16, *kernels("norm", "head")])).is_empty()
    assert len(inferred(trace_of_program(layer * 16))) == 16


def test_a_loop_that_reads_and_much_follows_is_none() -> None:
    reading = [*kernels("mask", "sort", "nms"), READ] * 30
    followed = [*kernels("fill"), *reading, *kernels("gather", "top", "clip", "scale") * 3]
    assert inferred(trace_of_program(followed)).is_empty()
    assert len(inferred(trace_of_program(followed[:-8]))) == 30


def test_nothing_is_inferred_where_ranges_are_steps_or_one_is_named() -> None:
    trace = loaded("h200-gpt2-eager")
    assert Timeline(trace, Options()).inferred_steps.is_empty()
    bare = without_ranges(trace)
    assert len(Timeline(bare, Options()).inferred_steps) == 5
    with pytest.raises(SelectionError, match="Without --step, steps are inferred"):
        assert Timeline(bare, Options(step="train")).steps


def without_ranges(trace: nsysflow.Trace) -> nsysflow.Trace:
    """The report of the same program if nobody had annotated it."""
    return replace(trace, ranges=trace.ranges.clear(), captures=trace.captures.clear())


ANNOTATED: Final = (
    *("h200-accumulation", "h200-compile", "h200-ddp-rank0", "h200-graph-ranges"),
    *("h200-hf-trainer", "h200-jax", "h200-nchw"),
)
"""Reports of different kinds in which one loop is annotated."""


@pytest.mark.parametrize("name", ANNOTATED)
def test_the_inferred_steps_are_those_that_were_annotated(name: str) -> None:
    assert_found_again(loaded(name), analysed(name).timeline)


def test_steps_of_a_torch_profiler_trace_without_marks_are_found_again() -> None:
    trace = nsysflow.load(ROOT / "tests" / "data" / "h200-kineto.pt.trace.json.gz")
    assert_found_again(trace, Timeline(trace, Options()))


def assert_found_again(trace: nsysflow.Trace, known: Timeline) -> None:
    """As many steps are inferred as were annotated, and most begin near these."""
    found = Timeline(without_ranges(trace), Options())
    expected, steps = known.steps["start_ns"].to_list(), found.steps["start_ns"].to_list()
    assert len(steps) == len(expected)
    shifts = [abs(one - other) for one, other in zip(steps, expected, strict=True)]
    length = median(after - before for before, after in pairwise(expected))
    assert median(shifts) < length / 4


@pytest.mark.parametrize("name", ["trainstep-torch", "h200-accumulation"])
def test_no_step_is_invented_in_a_single_pass_of_a_real_program(name: str) -> None:
    """The passes hold loops: over time steps, parts of a batch, and trials."""
    trace = loaded(name)
    known = Timeline(trace, Options())
    begins = known.with_inferred.ranges["start_ns"].gather(known.steps["range"]).sort()
    for begun, ended in pairwise(begins):
        calls = trace.calls.filter(pl.col("start_ns").is_between(begun, ended, closed="left"))
        ops = trace.ops.join(calls, on=["process", "correlation"], how="semi")
        single = replace(without_ranges(trace), calls=calls, ops=ops)
        assert Timeline(single, Options()).inferred_steps.is_empty()


def test_steps_of_a_part_of_a_report_are_those_of_the_whole() -> None:
    bare = Timeline(without_ranges(loaded("h200-gpt2-eager")), Options())
    again = Timeline(bare.trace, Options(), events=bare.events, inferred=bare.inferred_steps)
    assert again.steps.equals(bare.steps)
    none = Timeline(bare.trace, Options(), events=bare.events, inferred=INFERRED_STEPS.to_frame())
    assert none.steps.is_empty()


SOLVE: Final = [*kernels("gather", "flux", "limit", "update", "norm"), READ]
SMOOTH: Final = [*kernels("restrict", "relax", "prolong", "correct", "residual", "mean"), READ]


def names_of(*program: Launched) -> list[tuple[str, int]]:
    """What is inferred of a program, as the oracle does it too, with the number of steps."""
    trace = trace_of_program(program)
    steps = inferred(trace)
    assert steps.rows() == by_oracle(trace)
    return steps.group_by("name", maintain_order=True).len().rows()


def test_a_second_loop_that_no_range_names_is_another_loop() -> None:
    """Seen in a clustering benchmark: two algorithms, ten passes each."""
    assert names_of(*SMOOTH * 8, *SOLVE * 20) == [("step", 20), ("loop 1", 8)]
    trained = names_of(*SMOOTH * 15, *training_step() * 9, *kernels("swap"), *SOLVE * 30)
    assert trained == [("step", 9), ("loop 1", 15), ("loop 2", 30)]


def variant(name: str) -> list[Launched]:
    """A round of a benchmark of several ways to search, all of which sort alike."""
    return [
        INPUT,
        *kernels(*(f"{name}_{part}" for part in ("norm", "distance", "sum")), "sort"),
        READ,
    ]


def test_loops_in_turn_that_share_a_kernel_are_loops_of_their_own() -> None:
    """Seen in a benchmark of nearest neighbours: 209 steps, one of them of 707 launches."""
    rounds = [*variant("global") * 20, *variant("texture") * 30, *variant("blas") * 12]
    assert names_of(*rounds) == [("step", 30), ("loop 1", 20), ("loop 2", 12)]
    shared = [INPUT, *kernels("norm", "distance", "sum", "sort", "root"), READ]
    blas = [*variant("blas"), *kernels("blas_scale", "blas_root")]
    assert names_of(*shared * 20, *blas * 12, *shared * 10) == [
        *(("step", 20), ("loop 1", 12), ("loop 2", 10))
    ]


def test_a_loop_that_another_one_follows_is_no_part_of_a_step() -> None:
    assert names_of(*SOLVE * 20, *SMOOTH * 8) == [("step", 20), ("loop 1", 8)]
    assert names_of(*SOLVE * 20, *kernels("head", "mean") * 5, *SMOOTH * 8) == []


def test_loops_that_alternate_are_not_parted() -> None:
    assert names_of(*[*variant("global") * 6, *variant("texture") * 6] * 2) == [("step", 24)]


def test_rounds_that_have_no_kernel_in_common_are_no_steps() -> None:
    """Seen in a course program: five ways to transpose, each run a hundred times."""
    each = [[INPUT, *kernels(f"transpose_{way}") * 30, READ] for way in range(5)]
    assert names_of(*(one for way in each for one in way)) == []


def test_few_passes_hardly_any_time_or_the_trials_of_a_tuner_are_no_other_loop() -> None:
    assert names_of(*SMOOTH * 4, *SOLVE * 20) == [("step", 20)]
    assert names_of(*SMOOTH * 8, *SOLVE * 200) == [("step", 200)]
    assert names_of(*[Launched(LOAD), *SMOOTH] * 8, *SOLVE * 20) == [("step", 20)]


def test_another_inferred_loop_is_in_the_ledger_and_can_be_the_step() -> None:
    plain = trace_of_program([*SMOOTH * 8, *SOLVE * 20])
    for name, other, count in ((None, "loop 1", 8), ("loop 1", "step", 20)):
        analysis = nsysflow.analyze(to_trace(plain), Options(step=name))
        found = analysis.run.filter(pl.col("part") == "loop")[["phase", "count"]].rows()
        assert found == [(other, count)]
        assert rows_of(analysis.run.to_dicts(), analysis.run.columns) == rows_of(
            run(Report(plain), name=name), analysis.run.columns
        )
    with pytest.raises(SelectionError, match="inferred: step, loop 1"):
        assert nsysflow.analyze(to_trace(plain), Options(step="loop 2")).steps
