"""What the host does while the GPU waits, which is never left without an answer (spec §16.12)."""

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.findings.explanation import explanations
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.compilation import code_loading
from nsysflow.analysis.findings.rules.copies import AS_ONE, PAGEABLE, blocking_copies
from nsysflow.analysis.findings.rules.host_code import data_loading, host_code
from nsysflow.analysis.findings.rules.last_resort import IDLE_PCT, idle_gpu
from nsysflow.analysis.findings.rules.periodic_pause import GARBAGE, Excess, periodic_pause
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.options import Options
from nsysflow.analysis.phases.names import LOADS_DATA
from tests import tiny
from tests.analyses import analysed, loaded, reports_of_rules
from tests.analysis.findings.subjects import (
    MS,
    US,
    Row,
    found,
    judged,
    later,
    launched,
    loop,
    options_of,
    valued_of,
)
from tests.in_us import call, copy, launch, opened
from tests.oracle.model import (
    Frame,
    LoaderTime,
    Overhead,
    Sample,
    Thread,
    to_trace,
)

BUILDING: Final = (
    *launched(10, 100),
    call(3_100, 3_120, "cuLibraryLoadData"),
    *launched(3_200, 400),
)
"""A kernel; 3 ms in which a library builds another one, loads it in 20 us and launches it."""


def test_what_builds_the_code_counts_with_what_loads_it() -> None:
    subject = loop(BUILDING, every=4_000)
    (one,) = found(code_loading, subject)
    assert (one.culprit, one.steps) == ("cuLibraryLoadData", 7)  # the last one lacks its tail
    assert one.at_most_ns > 2.9 * MS
    assert not found(host_code, subject)


@pytest.mark.parametrize("steps", [45, 60])
def test_steady_steps_that_load_code_in_the_beginning_alone_say_so(steps: int) -> None:
    """Of 25 steps with new code, 20 or 35 follow, and half of all or more are 30."""
    rest = [row for row in BUILDING if getattr(row, "name", "") != "cuLibraryLoadData"]
    subject = loop(lambda i: BUILDING if i < 25 else rest, every=4_000, steps=steps)
    (one,) = found(code_loading, subject)
    assert one.title.endswith("in the first half of the recording alone") == (steps == 60)


@pytest.mark.parametrize(
    ("later_ns", "rules"), [(2_000 * US, {"code-loading"}), (1_900 * US, set())]
)
def test_loading_that_ends_with_the_recording_is_not_to_be_changed(
    monkeypatch: pytest.MonkeyPatch, later_ns: int, rules: set[str]
) -> None:
    subject = loop(BUILDING, every=4_000)
    options = replace(subject.timeline.options, unrecorded_step_ns=later_ns)
    monkeypatch.setattr(subject.timeline, "options", options)
    found_rules = {one.finding.rule for one in find(subject).valued}
    assert found_rules & {"code-loading", "host-code", "idle-gpu"} == rules


LOADING: Final = (
    *("/data", "/next_batch", "/get_data", "/wait_for_batch", "/loader/decode", "/tokenize"),
    "/enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
)
OTHERS: Final = (
    *("/forward", "/batch_norm", "/h2d", "/load_checkpoint", "/metadata", "/input_projection"),
)


def test_a_phase_loads_data_by_its_name() -> None:
    paths = pl.Series([*LOADING, *OTHERS])
    assert paths.filter(paths.str.contains(LOADS_DATA)).to_list() == [*LOADING]


BETWEEN: Final = launched(2_010, 900)
"""Launched by the model in a step, behind 2 ms of host code outside any range."""


def test_host_code_outside_all_ranges_is_an_upper_bound() -> None:
    (one,) = found(data_loading, loop(BETWEEN, every=3_000, within=(2_000, 2_030)))
    assert one.title == "host code between the steps"
    assert options_of(one) == "--faster-host (outside ranges)=0"
    assert one.method == "bound"
    assert "num_workers" in one.change[1]


def test_code_between_the_steps_saves_no_more_than_the_gpu_waits_for_it() -> None:
    """Ten launches in each step; outside of it a pause of 400 us, and eight launches."""
    at = [*range(10, 210, 20), *range(600, 1_080, 60)]
    rows = [row for start in at for row in launched(start, 5)]
    one = valued_of("data-loading", loop(rows, every=1_200, within=(0, 250)))
    assert one.high_ns == one.finding.size_ns < 600 * US


@pytest.mark.parametrize(("at", "on_gpu"), [(4_980, True), (5_010, False)])
def test_host_code_outside_all_ranges_is_no_loader_where_batches_have_a_phase(
    at: int, on_gpu: bool
) -> None:
    rows = opened(3_000, 5_000, "data"), *BETWEEN, *launched(at, 900)
    elsewhere, loads = found(data_loading, loop(rows, every=6_000, within=(2_000, 6_000)))
    assert (loads.phase, elsewhere.phase) == ("step/data", "")
    assert ("on the GPU" in loads.change[0]) is on_gpu  # where kernels make a batch
    assert not any("num_workers" in advice for advice in elsewhere.change)


def test_a_dataset_that_puts_samples_on_the_gpu_one_by_one_is_told_to_leave_them() -> None:
    rows: list[Row] = [opened(1, 2_000, "data"), *launched(1_900, 900)]
    for at in range(100, 1_300, 100):
        rows.append(launch(at, at + 25, at, name="cudaMemcpyAsync"))
        rows.append(copy(at + 8, at + 20, at, "HtoD", "pageable", "device"))
    subject = loop(rows, every=3_000)
    (data,) = (one for one in found(data_loading, subject) if one.phase)
    assert data.change[0].startswith("leave samples on the CPU")
    assert "12 copies a step put samples on the GPU" in data.evidence
    (copies,) = found(blocking_copies, subject)
    assert copies.title.startswith("copy of pageable memory, 12 times a step: ")
    assert copies.change == (AS_ONE, *PAGEABLE)


def logging(late: int = 3_200) -> list[Row]:
    """Two kernels; so much Python between them in a range."""
    between = opened(20, late + 20, "log")
    return [*launched(10, 100), between, *launched(late, 3_980 - late)]


def test_a_long_piece_of_python_in_each_step_is_an_upper_bound() -> None:
    (one,) = find(loop(logging(), every=4_000)).valued
    assert (one.finding.rule, one.finding.phase) == ("host-code", "step/log")
    assert one.finding.method == "bound"
    assert one.low_ns == 0
    assert 2 * MS < one.high_ns < 3.2 * MS


@pytest.mark.parametrize("kernel_us", [780, 3_200])
def test_the_gpu_s_work_hides_no_more_of_code_that_stays_than_it_takes(kernel_us: int) -> None:
    rows = *logging(), *launched(3_990, kernel_us)
    (one,) = found(host_code, loop(rows, every=4_000 + kernel_us))
    hides = re.search(r"can hide at most (\S+ ms) of it$", one.evidence[-1])
    assert (hides and hides[1]) == ("1.66 ms" if kernel_us < 1_000 else None)


def test_one_function_in_a_phase_and_between_the_steps_is_one_finding() -> None:
    look_up = (Frame("/me/t.py", 7, "look_up"),)
    times = *range(100, 3_100, 100), *range(4_000, 6_000, 100)
    rows = *logging(), *(Sample(at * US, tiny.MAIN, look_up) for at in times)
    subject = loop(rows, every=6_000, within=(0, 4_000))
    (one,) = found(host_code, subject)
    assert one.title == "look_up (t.py:7) holds the GPU up between the steps and in step/log"
    assert one.source == "t.py:7 in look_up"
    assert options_of(one) == "--faster-host (outside ranges)=0 --faster-host step/log=0"
    assert 4.8 * MS < one.size_ns < 5.2 * MS
    assert not found(data_loading, subject)


@pytest.mark.parametrize(
    ("function", "advice"),
    [("aten::_cudnn_attention_forward", "enable_cudnn_sdp"), ("aten::mm", "on another thread")],
)
def test_attention_that_cudnn_builds_anew_has_advice_of_its_own(function: str, advice: str) -> None:
    stack = (Frame("", None, function),)
    samples = (Sample(at * US, tiny.MAIN, stack) for at in range(100, 3_100, 100))
    (one,) = found(host_code, loop([*logging(), *samples], every=4_000))
    assert advice in one.change[0]


def test_the_host_s_time_in_the_phases_inside_is_not_taken_with_it() -> None:
    nested = *logging(), opened(3_190, 3_210, "inner")
    (one,) = found(host_code, loop(nested, every=4_000))
    assert options_of(one) == "--faster-host step/log/.=0"


@pytest.mark.parametrize("name", ["step", "batch"])
def test_short_steps_have_no_host_code(name: str) -> None:
    assert not found(data_loading, loop(launched(60, 20), every=100, name=name))


def test_neither_a_piece_in_a_third_of_the_steps_nor_start_up_is_host_code() -> None:
    third = loop(lambda i: logging(120 if i % 3 else 3_200), steps=9, every=4_000)
    start_up = JudgedReport(tiny.analysis_of(*launched(10, 100), *launched(90_000, 100)))
    assert not found(host_code, third)
    assert not found(host_code, start_up)


def test_what_the_profiler_takes_is_a_replay_without_it() -> None:
    """A kernel, and one that is launched 200 us later since the profiler works meanwhile."""
    flush = Overhead(220 * US, 420 * US, tiny.PROCESS, tiny.MAIN, "Buffer flush")
    flushing = *launched(10, 200), flush, *launched(425, 200)
    one = valued_of("profiler-overhead", loop(flushing, every=650))
    assert options_of(one.finding) == "--no-profiler"
    assert one.high_ns > 150 * US


def pausing(
    every: int,
    pause: tuple[Row, ...] = (),
    *times: LoaderTime,
    until: int = 40,
    behind_us: int = 0,
) -> JudgedReport:
    """41 steps of 1 ms; each so many of the first takes 5 ms longer, in a range that saves, with
    the rows of `pause` from 500 us of the step on; the step behind it takes so much longer."""
    rows: list[Row] = []
    start = 0
    for i in range(41):
        slow = 5_000 if i % every == every - 1 and i < until else 0
        more = slow or (behind_us if i and i % every == 0 else 0)
        phase = "forward" if behind_us and not slow else "save"
        step = (
            *(opened(0, 990 + more, "step"), opened(30, 420 + more, phase)),
            *(*launched(10, 400), *launched(425 + more, 500)),
            *(later(pause, 500) if slow else ()),
        )
        rows += later(step, start)
        start += 1_000 + more
    return judged(*rows, loader_times=times)


@pytest.mark.parametrize(("every", "until", "least_ms"), [(8, 40, 0.5), (6, 30, 0.55)])
def test_what_some_steps_take_longer_is_spread_over_all_of_the_run(
    every: int, until: int, least_ms: float
) -> None:
    (one,) = found(periodic_pause, pausing(every, until=until))
    assert one.title.startswith(f"every {every} steps one takes longer")
    assert least_ms * MS < one.at_most_ns < 0.7 * MS
    assert one.method == "bound"


@pytest.mark.parametrize("doubling", [True, False])
def test_steps_that_grow_from_one_to_the_next_are_no_long_ones(*, doubling: bool) -> None:
    """A sweep over sizes; a loop whose last steps are long by chance, though all grow a little."""
    rows: list[Row] = []
    start = 0
    for i in range(20):
        size = 2 ** (i // 2 if doubling else 9 * (i > 17)) * (1 + i / 100)
        took = round(200 * size)
        rows += later([opened(0, took + 50, "step"), *launched(10, took)], start)
        start += took + 60
    subject = judged(*rows)
    assert bool(subject.whole.growth_ns) == doubling
    assert bool(found(periodic_pause, subject)) != doubling


QUEUE: Final = "/usr/lib/python3.12/multiprocessing"
LOADER: Final = "/lib/python3.12/site-packages/torch/utils/data/dataloader.py"


def standing(*stack: str) -> tuple[Row, ...]:
    """Samples each 100 us of this stack: `FILE:LINE FUNCTION`, the innermost first."""
    frames = tuple(
        Frame(file, int(number), function)
        for file, number, function in (re.split(r"[: ]", frame) for frame in stack)
    )
    return tuple(Sample(at * US, tiny.MAIN, frames) for at in range(0, 4_900, 100))


COPYING: Final = (
    launch(0, 4_500, 3, name="cudaMemcpy"),
    copy(10, 4_010, 3, "DtoH", "device", "pageable"),
)
"""A copy to pageable memory that the host waits for, 4 ms of 4.5."""
SAVED: Final = "write checkpoints from another thread"
WAITED: Final = "waiting for another process or thread"


@pytest.mark.parametrize(
    ("pause", "what", "change"),
    [
        ((), "host code in step/save", SAVED),
        (standing("/me/t.py:7 write", "/me/t.py:1 main"), "host code, t.py:7 in write", "another"),
        (
            standing(f"{QUEUE}/c.py:1 _recv", f"{QUEUE}/q.py:2 get", "/me/t.py:7 main"),
            f"{WAITED}, t.py:7 in main",
            "ask for it earlier",
        ),
        (
            standing("/lib/python3.12/subprocess.py:1 communicate", "/me/t.py:7 gpu_state"),
            f"{WAITED}, t.py:7 in gpu_state",
            "subprocess.Popen",
        ),
        (
            standing("/me/t.py:7 gc_collect", "/me/t.py:1 main"),
            "garbage collection, t.py:7 in gc_collect",
            "gc.freeze()",
        ),
        (
            standing(f"{QUEUE}/p.py:1 _launch", f"{LOADER}:2 _get_iterator", "/me/t.py:7 endless"),
            "starting a DataLoader's workers, t.py:7 in endless",
            "persistent_workers=True",
        ),
        (
            standing(f"{LOADER}:1 _process_data", f"{LOADER}:2 __next__", "/me/t.py:7 endless"),
            "host code, t.py:7 in endless",
            "another",
        ),
        (COPYING, "copies to the host in step/save", SAVED),
        (launched(1, 4_800), "GPU work", "do it less often, or with fewer samples"),
    ],
)
def test_the_advice_on_a_pause_is_about_the_largest_part_of_it(
    pause: tuple[Row, ...], what: str, change: str
) -> None:
    (one,) = found(periodic_pause, pausing(8, pause))
    assert one.title.startswith(f"every 8 steps one takes longer: {what}")
    assert change in one.change[0]
    assert ("gc." in " ".join(one.change)) == ("garbage" in what)
    assert ("--sample-python 1000" in " ".join(one.change)) == (pause in ((), COPYING))


@pytest.mark.parametrize(("fetch_ms", "stays_ms"), [(None, 0), (1, 1), (9, 1.9)])
def test_workers_that_live_save_no_wait_for_their_first_batch(
    fetch_ms: int | None, stays_ms: float
) -> None:
    """It stays as long as a batch usually takes, at most as long as a pause waits for it."""
    starting = standing(f"{LOADER}:2 _get_iterator", "/me/t.py:7 endless")
    waiting = standing(f"{LOADER}:9 _get_data", f"{LOADER}:2 __next__", "/me/t.py:7 endless")
    pause = (*starting[:30], *waiting[30:])
    times = [] if fetch_ms is None else [LoaderTime(
        process=tiny.PROCESS, loader=0, worker=0, workers=1,
        start_ns=MS, fetched_ns=(1 + fetch_ms) * MS, end_ns=20 * MS, cores=8,
    )]  # fmt: skip
    (whole,), (one,) = (found(periodic_pause, pausing(8, pause, *some)) for some in ([], times))
    less_ns = (whole.at_most_ns - one.at_most_ns) * 40 / 5
    assert less_ns == pytest.approx(stays_ms * MS, rel=0.1)
    assert any("the first batch" in words for words in one.evidence) == bool(stays_ms)


def test_long_steps_that_wait_for_workers_have_the_loaders_advice() -> None:
    """Both workers are busy all the time, and take four steps for a batch."""
    waiting = standing(f"{LOADER}:9 _get_data", f"{LOADER}:2 __next__", "/me/t.py:7 endless")
    made = partial(LoaderTime, tiny.PROCESS, 0, workers=2, prefetch_factor=2, cores=8)
    waits = [made(None, at * MS, None, at * MS + US) for at in range(40)]
    work = [
        made(worker, at, at + 4 * MS - 9, at + 4 * MS)
        for at in range(0, 60 * MS, 4 * MS)
        for worker in range(2)
    ]
    (alone,), (one,) = (
        found(periodic_pause, pausing(8, waiting, *times)) for times in ([], [*waits, *work])
    )
    assert "waiting for another process or thread, t.py:7 in endless" in alone.title
    assert "waiting for the DataLoader's workers, t.py:7 in endless" in one.title
    assert one.change[0].startswith("DataLoader(…, num_workers=3, ")
    assert "2 workers give 500 batches/s, the loop takes 629: 3 workers needed" in one.evidence


def test_a_pause_saves_nothing_of_what_the_profiler_itself_takes() -> None:
    """Its buffers are emptied now and then, which no change of the program avoids."""
    flush = Overhead(0, 3 * MS, tiny.PROCESS, tiny.MAIN, "Buffer flush")
    (whole,), (one,) = (found(periodic_pause, pausing(8, pause)) for pause in ((), (flush,)))
    less_ns = (whole.at_most_ns - one.at_most_ns) * 40 / 5
    assert less_ns == pytest.approx(3 * MS, rel=0.1)
    assert "the profiler itself holds up each of them for 3.00 ms" in one.evidence
    assert one.title.startswith("every 8 steps one takes longer: host code")


def test_a_line_without_half_of_the_samples_is_advised_on_before_garbage_is() -> None:
    excess = Excess(
        parts={"host": 1},
        spot=None,
        lines=(("train.py:7 in write", 30), ("train.py:9 in save", 20)),
        sampled=True,
        known="",
        copies="",
        stall=("", ""),
    )
    assert excess.source == ("train.py:7 in write", "")
    assert "on another thread" in excess.change("train.py:7 in write", "")[0]
    assert excess.change("train.py:7 in write", "")[-1] == excess.change("", "")[0] == GARBAGE
    copies = replace(excess, parts={"copies": 1}, copies="to the host")
    assert "copy only the result" in copies.change("", "step/log")[0]


def test_a_step_right_behind_each_pause_is_part_of_the_pause() -> None:
    (one,) = found(periodic_pause, pausing(8, behind_us=1_000))
    assert one.size_ns == pytest.approx(6 * MS / 8, rel=0.1)
    assert one.evidence[-1].endswith("is in the steps behind them")


def bare(name: str) -> nsysflow.Trace:
    """A report without ranges and without stacks, as other tools record it."""
    trace = loaded(name)
    frames = ("ranges", "captures", "backtraces", "samples")
    return replace(trace, **{each: getattr(trace, each).clear() for each in frames})


BARE: Final = {
    "h2d-pageable": Options(),  # with inferred steps
    "h200-host-split": Options(),
    "metrics-each_step": Options(whole=True),
    "synthetic-1": Options(whole=True),
}
"""With and without a last resort, which says what to record or names a place."""


def idle_ns(analysis: nsysflow.Analysis) -> tuple[int, int]:
    """The idle time of the GPU that idles most, and its window."""
    most = analysis.judged.accounting.sort("idle_ns", "device").tail(1)
    return most.select("idle_ns", "window_ns").row(0) if len(most) else (0, 1)


def is_explained(analysis: nsysflow.Analysis, idle_ns: int, window_ns: int) -> bool:
    """Whether findings explain the recorded idle time: they would save half of it (of host code all
    but 20 % of the window), or half of each cause, of causes that have half of it."""
    found, left = analysis.found, Replays(JudgedReport(analysis)).idle_left
    saved: Counter[tuple[str, ...]] = Counter()
    for one in found.valued:
        causes = () if one.finding.beside else tuple(explanations()[one.finding.rule].causes)
        saved[causes] += round(found.steps * one.alone_ns / left) if left else idle_ns
    del saved[()]
    of_causes = analysis.judged.gap_summary.group_by(pl.col("cause").cast(pl.String)).agg(
        pl.col("total_ns").sum()
    )
    known = (cause for cause, ns in of_causes.rows() if 2 * saved[(cause,)] >= ns)
    unknown = of_causes.filter(~pl.col("cause").is_in([*known])).sort("total_ns").rows()
    if not unknown or 2 * sum(ns for _, ns in unknown) < idle_ns:
        return True
    left_ns = idle_ns - sum(saved.values())
    of_host = unknown[-1][0] == "host" and analysis.judged.comm.is_empty()
    return 2 * left_ns <= idle_ns and not (of_host and 100 * left_ns >= IDLE_PCT * window_ns)


@reports_of_rules
def test_much_idle_time_has_findings_that_explain_it_or_a_last_resort(name: str) -> None:
    assert_explained(analysed(name))


@pytest.mark.parametrize("name", BARE)
def test_so_has_that_of_a_report_without_ranges_and_stacks(name: str) -> None:
    assert_explained(nsysflow.analyze(bare(name), BARE[name]))


def assert_explained(analysis: nsysflow.Analysis) -> None:
    idle, window = idle_ns(analysis)
    if analysis.failed_checks or 100 * idle < IDLE_PCT * window:
        return
    resort = [one.finding for one in analysis.found.valued if one.finding.rule == "idle-gpu"]
    assert resort or is_explained(analysis, idle, window)
    assert all(
        one.source or one.phase or one.culprit or "--sample-python" in str(one.change)
        for one in resort
    )


def test_operations_name_the_place_where_no_line_does_unless_all_are_alike() -> None:
    inferred = valued_of("idle-gpu", JudgedReport(nsysflow.analyze(bare("rolloutcopy-fused"))))
    place = "mostly host code, the largest part between _draw and _select_copy"
    assert inferred.finding.title == f"the GPU idles 98 % of the time, {place}"
    assert "--sample-python" in inferred.finding.change[-1]
    rows = [row for n in range(12) for row in launched(1_000 * n, 10, took=9)]
    alike = valued_of("idle-gpu", JudgedReport(tiny.analysis_of(*rows))).finding
    assert "--sample-python" in alike.change[0]  # first comes what to record
    assert "between" not in alike.title
    # what is sampled and has no sample there, such as backward, would have none again
    asleep = JudgedReport(tiny.analysis_of(tiny.sample(500, "wait"), *rows))
    (one,) = idle_gpu(asleep, 0, {})
    assert "--sample-python" not in str(one.change)


RECORD: Final = "record what the host runs meanwhile"


@pytest.mark.parametrize(
    ("main_thread", "advice"),
    [
        ("vecadd_gpu_256t", "put an NVTX range around each part"),
        ("python3", RECORD),
        ("train.py", RECORD),
        (None, RECORD),  # not known
    ],
)
def test_a_program_without_python_is_not_told_to_sample_python(
    main_thread: str | None, advice: str
) -> None:
    rows = [row for n in range(12) for row in launched(1_000 * n, 10, took=9)]
    named = () if main_thread is None else (Thread(tiny.PROCESS, tiny.MAIN, main_thread),)
    others = Thread(tiny.PROCESS, tiny.MAIN + 1, "python"), Thread(9 << 24, 9 << 24 | 9, "python")
    trace = to_trace(replace(tiny.plain_of(*rows), threads=(*named, *others)))
    one = valued_of("idle-gpu", JudgedReport(nsysflow.analyze(trace))).finding
    assert one.change[0].startswith(advice)
    assert ("python train.py" in one.change[0]) == (advice == RECORD)


@pytest.mark.parametrize(
    ("kernel", "every_us", "advice"),
    [
        ("wrapped_add", 200, "one jax.jit around the whole step"),
        ("wrapped_add", 2_000, RECORD),  # ten pauses a step: no dispatch
        ("add", 200, RECORD),
    ],
)
def test_jax_that_launches_operation_by_operation_is_told_to_jit(
    kernel: str, every_us: int, advice: str
) -> None:
    starts = range(10, 19_000, every_us)
    step = [row for at in starts for row in launched(at, 5, name=kernel)]
    (one,) = idle_gpu(loop(step, every=20_000), 0, {})
    assert one.change[0].startswith(advice)
