"""Which sample stands for which instant, and for how much of a gap, on traces of a few rows."""

from dataclasses import replace

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.tables.host_stacks import NOT_SAMPLED
from tests.oracle.model import Frame, Sample, to_trace
from tests.tiny import AUTOGRAD, MAIN, Row, call, kernel, launch, opened, plain_of

US = 1_000


def sample(us: int, function: str, *, thread: int = MAIN, file: str = "train.py") -> Sample:
    return Sample(us * US, thread, (Frame(f"/home/me/{file}", 1, function),))


def gap(*rows: Row, thread: int = MAIN) -> list[Row]:
    """A gap from 100 to 1000 us, of which the host needs 900 to get to the next launch."""
    return [
        launch(0, 10 * US, 1),
        kernel(20 * US, 100 * US, 1),
        launch(1_000 * US, 1_001 * US, 2, thread=thread),
        kernel(1_000 * US, 1_100 * US, 2),
        *rows,
    ]


def found(rows: list[Row], *samples: Sample, options: Options | None = None) -> nsysflow.Analysis:
    return nsysflow.analyze(to_trace(replace(plain_of(*rows), samples=samples)), options)


def idle_us(analysis: nsysflow.Analysis, *columns: str) -> dict[tuple[object, ...], float]:
    """Idle us by function and more columns."""
    rows = analysis.host_stacks.select("function", *columns, "idle_ns").rows()
    return {tuple(key): ns / US for *key, ns in rows}


def test_an_instant_goes_to_the_nearest_sample() -> None:
    analysis = found(gap(), sample(300, "f"), sample(500, "g"), sample(700, "h"))
    #                100---------400---------600--------1000
    assert idle_us(analysis) == {("f",): 300.001, ("g",): 200, ("h",): 399.999}


def test_of_two_samples_equally_near_the_earlier_counts() -> None:
    analysis = found(gap(), sample(100, "f"), sample(1_000, "g"))
    assert analysis.host_stacks["idle_ns"].to_list() == [450 * US + 1, 450 * US - 1]
    assert analysis.host_stacks["function"].to_list() == ["f", "g"]


def test_no_sample_stands_for_more_than_two_periods() -> None:
    analysis = found(gap(), *(sample(us, "f") for us in (200, 250, 300)))
    #                100--------------------------400............1000
    assert idle_us(analysis) == {(NOT_SAMPLED,): 599.999, ("f",): 300.001}


def test_one_sample_has_no_period_and_stands_for_nothing() -> None:
    assert idle_us(found(gap(), sample(500, "f"))) == {(NOT_SAMPLED,): 900}


def test_of_two_samples_at_one_instant_the_first_counts() -> None:
    twice = sample(500, "first"), sample(500, "second"), sample(900, "later")
    assert set(idle_us(found(gap(), *twice))) == {("first",), ("later",)}


def test_a_report_without_samples_has_no_rows() -> None:
    analysis = found(gap())
    assert analysis.host_stacks.is_empty()
    assert analysis.idle_stacks.is_empty()


def test_the_thread_before_stands_in_until_the_next_thread_calls() -> None:
    rows = gap(call(600 * US, 610 * US, "cudaEventQuery", thread=AUTOGRAD), thread=AUTOGRAD)
    main = sample(200, "backward"), sample(800, "backward")
    analysis = found(rows, *main, sample(200, "node", thread=AUTOGRAD))
    assert idle_us(analysis, "thread") == {("backward", 1): 500, ("node", 2): 390}


def test_time_inside_a_launch_call_is_where_it_was_called() -> None:
    rows: list[Row] = [
        launch(0, 10 * US, 1),
        kernel(20 * US, 100 * US, 1),
        launch(110 * US, 130 * US, 2, name="cudaMemsetAsync"),
        launch(140 * US, 150 * US, 3),
        kernel(150 * US, 160 * US, 3),
        opened(105 * US, 135 * US, "a"),
        opened(135 * US, 200 * US, "b"),
    ]
    analysis = found(rows, sample(100, "f"), sample(120, "g"), sample(140, "h"))
    assert idle_us(analysis, "phase", "cause") == {
        ("f", "a", "host"): 10,
        ("f", "a", "launch"): 0.001,  # at 110 us, f is as near as g
        ("g", "a", "launch"): 20,
        ("h", "a", "launch"): 9.999,
        ("h", "b", "launch"): 10,
    }


def test_what_a_stall_is_charged_is_taken_from_all_samples_in_proportion() -> None:
    wait = call(20 * US, 90 * US, "cudaStreamSynchronize")
    analysis = found(gap(wait), sample(300, "f"), sample(500, "g"), sample(700, "h"))
    # of 900 us, step 3 charges 70 to the wait
    assert analysis.accounting["host_ns"].item() == 830 * US
    shares = [round(us / 830, 3) for us in idle_us(analysis).values()]
    assert sorted(shares) == [round(200 / 900, 3), round(300 / 900, 3), round(400 / 900, 3)]


def test_a_window_cuts_the_samples_of_a_gap_in_proportion() -> None:
    samples = sample(300, "f"), sample(500, "g"), sample(700, "h")
    half = found(gap(), *samples, options=Options(to_ns=550 * US))
    assert sum(idle_us(half).values()) == 450
    assert idle_us(half)["g",] == 100


def test_samples_of_other_processes_stand_for_nothing() -> None:
    other = [sample(us, "f", thread=(2 << 24) | 2) for us in (200, 500, 800)]
    assert idle_us(found(gap(), *other)) == {(NOT_SAMPLED,): 900}


def test_a_wait_without_a_backtrace_has_the_line_of_the_first_sample_inside_it() -> None:
    rows = gap(
        call(200 * US, 400 * US, "cudaStreamSynchronize"), call(500 * US, 501 * US, "cudaMalloc")
    )
    analysis = found(rows, sample(250, "f"), sample(350, "g"), sample(499, "h"))
    lines = dict(analysis.syncs.select("api", "source").rows())
    assert lines == {"cudaStreamSynchronize": "train.py:1 in f", "cudaMalloc": None}


def test_a_launch_takes_no_line_from_a_sample() -> None:
    analysis = found(gap(), sample(5, "f"), sample(1_000, "g"))
    assert analysis.gap_summary["source"].to_list() == [None]
