"""What the host ran while the GPU waited; a function's waits, copies and code as one finding."""

import re
from collections.abc import Iterable
from itertools import cycle
from typing import Final

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.host_functions import AT_THE_LINE, Running, code, functions, running
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules import Rule
from nsysflow.analysis.findings.rules.compilation import code_loading
from nsysflow.analysis.findings.rules.copies import TO_THE_HOST
from nsysflow.analysis.findings.rules.host_code import data_loading, host_code
from nsysflow.analysis.findings.rules.launch_bound import launch_bound
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.names import OUTSIDE
from tests import tiny
from tests.analysis.findings import test_kernels as names
from tests.analysis.findings.subjects import (
    MS,
    US,
    Row,
    changes_of,
    found,
    later,
    launched,
    loop,
    options_of,
    real,
    valued_of,
)
from tests.in_us import call, copy, launch, opened, sample
from tests.oracle.model import Frame, Sample
from tests.report.handmade import frame


@pytest.mark.parametrize(
    ("function", "source", "via", "read"),
    [
        ("tokenize", "train.py:88 in collate", None, "tokenize in collate (train.py:88)"),
        ("collate", "train.py:88 in collate", None, "collate (train.py:88)"),
        ("select", None, None, "select"),
        ("aten::normal_", "a b.py:3 in init", None, "aten::normal_ in init (a b.py:3)"),
        ("select", "t.py:9 in <module>", "hf/t.py:25 in loop", "select in loop (hf/t.py:25)"),
        # a library's function at the line that called it, if there is one
        ("stack", "t.py:9 in sample", "np/s.py:465 in stack", "stack in sample (t.py:9)"),
        ("stack", None, "np/s.py:465 in stack", "stack (np/s.py:465)"),
    ],
)
def test_code_reads_as_the_function_and_the_line_that_called_it(
    function: str, source: str | None, via: str | None, read: str
) -> None:
    assert code({"function": function, "source": source, "via": via}) == read


def test_lines_of_one_caller_are_one_row_with_the_line_that_took_longest() -> None:
    common = {"function": "read", "phase": "step", "cause": "host"}
    lines = (("a.py:1 in load", 1), ("a.py:2 in load", 2), ("a.py:1 in save", 1))
    rows = [{**common, "source": source, "idle_ns": ns} for source, ns in lines]
    found = functions(frame("host_stacks", *rows)).select("source", "idle_ns").rows()
    assert found == [("a.py:2 in load", 3), ("a.py:1 in save", 1)]


Stack = tuple[Frame, ...]


def sampled_at(times: Iterable[int], *stacks: Stack) -> list[Row]:
    """A sample at each of these us, which go to each stack in turn; an empty one has none."""
    pairs = zip(times, cycle(stacks), strict=False)
    return [Sample(at * US, tiny.MAIN, stack) for at, stack in pairs if stack]


def busy(name: str, *stacks: Stack) -> list[Row]:
    """Two kernels, and between them 3 ms of Python in a range with a sample each 100 us."""
    samples = sampled_at(range(50, 3_000, 100), *stacks)
    return [*launched(10, 10), opened(20, 3_020, name), *samples, *launched(3_030, 10)]


def sampled(name: str, *stacks: Stack) -> JudgedReport:
    """Steps of that."""
    return loop(busy(name, *stacks), every=4_000)


def at(*stack: str) -> Stack:
    """`FUNCTION FILE:LINE` of each frame, the innermost first; a library's file has no folder."""
    spelled = (re.split(r"[ :]", frame) for frame in stack)
    return tuple(
        Frame(f"/{'usr/lib/python3.12' if file in LIBRARY else 'me'}/{file}", int(line), function)
        for function, file, line in spelled
    )


LIBRARY: Final = ("functional.py", "queue.py", "threading.py")
ONE = at("tokenize train.py:1", "collate train.py:2")
OTHER = at("pad train.py:1", "collate train.py:2")


def test_the_function_with_at_least_half_of_the_time_is_named_alone() -> None:
    ran = running(sampled("log", ONE, ONE, OTHER), "step/log")
    assert ran.mostly == "tokenize (train.py:1)"
    assert ran.evidence == (
        "while the GPU waited for the host there, it ran tokenize (train.py:1) 66 % of the time,"
        " pad (train.py:1) 34 %",
    )


@pytest.mark.parametrize(
    ("stacks", "mostly"),
    [
        # no function has half, but the function that calls them has
        (
            (
                at("log_mel a.py:22", "train a.py:56"),
                at("stft functional.py:9", "log_mel a.py:21", "train a.py:56"),
                at("log_mel a.py:22", "train a.py:56"),
                at("adam functional.py:7", "train a.py:64"),
                at("train a.py:56"),
            ),
            "log_mel (a.py:22)",
        ),
        # the line that calls them has
        ((at("f a.py:1", "g a.py:9"), at("h a.py:2", "g a.py:9"), at("k a.py:3")), "g (a.py:9)"),
        # many lines of the loop itself are no place: all launches are made in it
        (tuple(at(f"f{n} a.py:{n}", f"loop a.py:1{n}", "main a.py:99") for n in range(4)), ""),
        # it waits for another thread
        (
            (at("wait threading.py:3", "get queue.py:4", "fetch a.py:5", "main a.py:9"),),
            "get in fetch (a.py:5)",
        ),
    ],
)
def test_the_innermost_line_with_at_least_half_of_the_time_is_named(
    stacks: tuple[Stack, ...], mostly: str
) -> None:
    ran = running(sampled("log", *stacks), "step/log")
    assert ran.mostly == mostly
    assert (ran.waits_in != "") == mostly.startswith("get")


def test_a_function_of_many_lines_that_is_not_the_loop_is_named() -> None:
    lines = tuple(at(f"f{n} a.py:{n}", f"add a.py:1{n}", "main a.py:99") for n in range(4))
    launching = sampled_at((10, 3_030), at("main a.py:98"))  # main makes the launches
    subject = loop([*busy("log", *lines), *launching], every=4_000)
    assert running(subject, "step/log").mostly == "add (a.py:11)"


def test_a_line_that_calls_functions_and_takes_the_time_itself_is_told_from_them() -> None:
    stacks = at("f a.py:1", "g a.py:9"), at("g a.py:9"), at("g a.py:9")
    ran = running(sampled("log", *stacks), "step/log")
    assert ran.mostly == "g (a.py:9)"
    assert ran.evidence[-1] == AT_THE_LINE


def test_without_samples_or_python_in_a_phase_nothing_is_said() -> None:
    assert running(sampled("log", ()), "step/log") == Running()
    assert running(sampled("log", ONE), OUTSIDE) == Running()


def in_log(subject: JudgedReport) -> Finding:
    """What is found of host code there; the pauses between two steps have a finding, too."""
    (one,) = (each for each in found(host_code, subject) if each.phase == "step/log")
    return one


def test_a_finding_on_host_code_names_the_function_and_its_rows() -> None:
    one = in_log(sampled("log", ONE))
    assert one.title == "tokenize (train.py:1) holds the GPU up in step/log"
    assert one.table == "host_stacks"
    assert any("it ran tokenize (train.py:1) 100 % of the time" in each for each in one.evidence)
    assert not any("--sample-python" in each for each in one.change)


def test_a_finding_without_samples_says_how_to_get_them() -> None:
    one = in_log(sampled("log", ()))
    assert one.title == "one piece of host code holds the GPU up in step/log"
    assert "--sample-python 1000" in one.change[-1]
    assert one.table == "gap_summary"


SMALL: Final[list[Row]] = [
    row
    for begin in range(10, 810, 40)
    for row in (*launched(begin, 2), sample(begin + 20, "forward", "step"))
]
"""20 kernels of 2 us, each launched 40 us after the one before, with a sample beside each."""
BUILDING: Final = *busy("build", ONE), call(3_022, 3_028, "cuLibraryLoadData")
"""Python that builds code, which is then loaded and launched."""


@pytest.mark.parametrize(
    ("rule", "subject", "ran"),
    [
        (data_loading, sampled("data", ONE), "tokenize (train.py:1) 100 %"),
        (launch_bound, loop(SMALL, every=820), "forward (train.py:1) 100 %"),
        (code_loading, loop(BUILDING, every=4_000), "tokenize (train.py:1)"),
    ],
)
def test_a_finding_says_what_the_host_ran(rule: Rule, subject: JudgedReport, ran: str) -> None:
    (one,) = found(rule, subject)
    assert any(ran in each for each in one.evidence)


def test_on_a_real_report_the_loader_s_functions_have_their_shares() -> None:
    (one,) = found(data_loading, real("h200-host-split"))
    (sentence,) = (each for each in one.evidence if "it ran" in each)
    shares = re.findall(r"(\w+) \(\S+\) (\d+) %", sentence)
    assert shares == [("tokenize", "59"), ("collate", "30"), ("busy", "9")]


TRAIN, METRIC = Frame("/me/t.py", 3, "train"), Frame("/me/t.py", 7, "add")
LOOP: Final = Frame("/me/t.py", 7, "train")


def steps_with(function: Frame, behind: Iterable[Row] = ()) -> JudgedReport:
    """Eight steps of 4 ms with kernels of 3 ms. Then 4 ms in a function of the program, with these
    rows 10 us behind its start."""
    rows = (
        *(*launched(10, 1_500), *launched(1_510, 1_500)),
        *sampled_at(range(0, 4_100, 100), (TRAIN,)),
        *sampled_at(range(4_100, 8_000, 100), (function, TRAIN)),
        *later(behind, 4_010),
    )
    return loop(rows, every=8_000, within=(0, 4_000))


def fetching(moved: int) -> tuple[Row, ...]:
    """A copy to pageable memory that the host waits for, 1 ms; 3 ms of Python are left."""
    fetched = copy(10, 990, 1, "DtoH", "device", "pageable", moved=moved)
    return launch(0, 1_000, 1, name="cudaMemcpy"), fetched


READING: Final = [
    row
    for now in range(0, 1_320, 110)
    for row in (
        launch(now, now + 105, now, name="cudaMemcpy"),
        copy(now + 50, now + 100, now, "DtoH", "device", "pageable"),
    )
]
"""Twelve values are read back, one each 110 us; 2.6 ms of Python are left."""


def test_what_a_function_copies_and_computes_on_the_host_is_one_finding() -> None:
    first, *others = find(steps_with(METRIC, fetching(2_000_000))).valued
    finding = first.finding
    assert (finding.rule, finding.source) == ("host-round-trip", "t.py:7 in add")
    assert finding.title == "copies and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("do its work on the GPU")
    # the copy blocks for 1 ms; 3 ms of Python follow it
    assert first.low_ns < 1.1 * MS
    assert first.high_ns == pytest.approx(4 * MS, rel=0.05)
    assert not {one.finding.rule for one in others} & {"data-loading", "pageable-copy"}
    assert not any(one.finding.joint for one in others)


@pytest.mark.parametrize(
    ("copied_bytes", "title"),
    [
        (2_000_000, "copy to pageable memory: cudaMemcpy outside any range, t.py:7 in train"),
        (8_000_000, "pageable DtoH copy outside any range, t.py:7 in train"),
    ],
)
def test_a_loop_that_copies_and_computes_is_no_round_trip(copied_bytes: int, title: str) -> None:
    valued = find(steps_with(LOOP, fetching(copied_bytes))).valued
    found = {one.finding.rule: one.finding for one in valued}
    assert {"data-loading", "pageable-copy"} <= found.keys()
    assert "host-round-trip" not in found
    fetched = found["pageable-copy"]
    assert (fetched.title, fetched.source) == (title, "t.py:7 in train")
    assert fetched.change[-2:] == TO_THE_HOST


def test_host_code_without_a_copy_or_a_wait_is_no_round_trip() -> None:
    valued = find(steps_with(METRIC)).valued
    (finding,) = (one.finding for one in valued if one.finding.is_sampled)
    # no loader, but code of the program: its change takes what that of host code does
    assert (finding.rule, finding.effort) == ("data-loading", "restructure")


BACKWARD: Final = [
    opened(-990, -30, "backward"),
    *(
        row
        for k in range(24)
        for row in launched(-985 + 40 * k, 2, name=(names.ADD, names.MUL)[k % 2])
    ),
]
"""A backward pass before that: two kernels for each value."""


@pytest.mark.parametrize("backward", [[], BACKWARD], ids=["alone", "with backward"])
def test_a_loop_that_reads_values_is_one_call_with_its_backward_pass(backward: list[Row]) -> None:
    first = find(steps_with(METRIC, [*backward, *READING])).valued[0].finding
    phases = ("(outside ranges)", *(("step/backward",) if backward else ()))
    assert changes_of(first).graphs == phases


def test_values_read_back_one_by_one_in_a_function_are_counted() -> None:
    first, *_ = find(steps_with(METRIC, READING)).valued
    finding = first.finding
    assert finding.title == "12 waits a step and host code in add (t.py:7) hold the GPU up"
    assert finding.change[0].startswith("one call for all")
    assert finding.change[1].startswith("read it some steps later")
    assert finding.change[-1].startswith("do it less often")


def pausing(*stacks: Stack) -> JudgedReport:
    """Eight steps of 1 ms whose two kernels `main` launches; after each 3 ms of Python, 150 us with
    each of these 20 stacks; the GPU waits 90 us longer, for the first of them."""
    each_for = (*[stacks[0]] * 9, *(each for each in stacks for _ in range(15)))
    code = sampled_at(range(915, 4_000, 10), *each_for)
    launching = sampled_at((10, 460), at("main a.py:99"))
    rows = [*launched(10, 450), *launched(460, 450), *launching, *code]
    return loop(rows, every=4_000, within=(0, 1_000))


PACK, UPLOAD = at("pack a.py:3", "main a.py:9"), at("upload a.py:6", "main a.py:8")
STACKED = at("stack functional.py:7", "pack a.py:4", "main a.py:9")
MOVED = at("upload a.py:6", "pack a.py:5", "main a.py:9")
READ, PARSED = (at(f"{name} functional.py:1", "fetch a.py:3", "main a.py:9") for name in ("r", "p"))
LOOPED, CALLED = at("main a.py:7"), at("stack functional.py:7", "main a.py:7")
GOT = at("wait threading.py:3", "get queue.py:4", "fetch a.py:5", "main a.py:9")
DEEP = tuple(at(f"f{n} a.py:{n}", "log_mel a.py:22", "main a.py:9") for n in range(3))


@pytest.mark.parametrize(
    ("stacks", "named", "part"),
    [
        ([PACK] * 13 + [UPLOAD] * 7, "pack (a.py:3)", 0.65),
        # a function with what it calls of libraries, but for other functions of the program
        ([PACK] * 11 + [STACKED] * 4 + [UPLOAD] * 5, "pack (a.py:3)", 0.75),
        ([PACK] * 13 + [MOVED] * 7, "pack (a.py:3)", 0.65),
        # a library's function with all that its line calls
        ([READ] * 11 + [PARSED] * 5 + [UPLOAD] * 4, "r in fetch (a.py:3)", 0.8),
        # of the loop only what is named
        ([LOOPED] * 12 + [CALLED] * 8, "main (a.py:7)", 0.6),
        # a function that no sample shows alone, with all that it calls
        ([*DEEP * 5, *[UPLOAD] * 5], "log_mel (a.py:22)", 0.75),
        # others finish what the host waits for
        ([GOT] * 13 + [UPLOAD] * 7, "get in fetch (a.py:5)", 1.0),
        # what no sample shows may be anything
        ([PACK] * 13 + [()] * 7, "pack (a.py:3)", 0.65),
    ],
)
def test_the_saving_is_that_of_the_code_that_is_named(
    stacks: list[Stack], named: str, part: float
) -> None:
    subject = pausing(*stacks)
    one = valued_of("data-loading", subject)
    whole_ns = Replays(subject).saving_ns(Changes(faster_host=((OUTSIDE, 0.0),))) or 0
    assert whole_ns == pytest.approx(3 * MS, rel=0.01)
    assert one.finding.title.endswith(f"between the steps: {named}")
    assert one.high_ns == pytest.approx(part * whole_ns, rel=0.03)
    assert one.finding.size_ns == pytest.approx(part * 3.09 * MS, rel=0.03)
    ((_, factor),) = changes_of(one.finding).faster_host
    assert factor == pytest.approx(1 - part, abs=0.021)
    assert options_of(one.finding) == f"--faster-host {OUTSIDE}={factor:g}"
    stays = [said for said in one.finding.evidence if "the rest there stays" in said]
    assert len(stays) == (part < 1)


def test_each_phase_has_its_own_share_of_the_code_that_is_named() -> None:
    rows = [*busy("log", ONE, ONE, OTHER), *later(busy("save", ONE), 3_500)]
    (one,) = (each for each in found(host_code, loop(rows, every=7_000)) if "log" in each.title)
    assert one.title == "tokenize (train.py:1) holds the GPU up in step/log and in step/save"
    factors = dict(changes_of(one).faster_host)
    assert factors == {"step/log": pytest.approx(0.34, abs=0.01), "step/save": 0.0}


def test_workers_take_all_that_a_phase_which_loads_data_runs() -> None:
    (one,) = found(data_loading, sampled("data", ONE, ONE, OTHER))
    assert options_of(one) == "--faster-host step/data=0"
