"""JSON that ranges carry: marks of windows, and NCCL's messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from nsysflow.analysis.load import load
from nsysflow.analysis.load.marks import (
    capture_of_mark,
    capture_rows,
    first_of_each,
    flops_rows,
    sent,
    slim_mark,
    slim_payload,
)
from tests.analysis.load.frames import loaded_and_packed
from tests.analysis.load.kineto import traces
from tests.exports import process, thread, write_export

WINDOW = {"capture": "3:2:5", "unprofiled_step_ns": 7}
FLOPS = {"unit": "bf16", "phases": {"forward": 10**12, "backward": 2 * 10**12}}


def mark(**content: Any) -> str:
    """The text of a mark."""
    return json.dumps({"nsysflow": content})


def event(text: str | None, tid: int = thread(), **columns: Any) -> dict[str, Any]:
    """A mark as an NVTX event."""
    return {"eventType": 34, "text": text, "globalTid": tid, "end": None, **columns}


def export(path: Path, *nvtx: dict[str, Any]) -> Path:
    return write_export(path, kernels=[{}], calls=[{}], nvtx=nvtx)


def test_the_first_mark_of_each_process_has_its_window_and_flops(tmp_path: Path) -> None:
    report = export(
        tmp_path / "r.sqlite",
        event("hello"),
        event(None, textId=mark(**WINDOW, flops=FLOPS)),
        event(mark(capture="9:9:9", flops={"unit": "tf32", "phases": {"forward": 5}})),
        event(mark(capture="0:0:1"), thread(2000, 2000)),
    )
    for trace in loaded_and_packed(report):
        assert trace.captures.rows() == [(process(), "3:2:5", 7), (process(2000), "0:0:1", None)]
        assert trace.flops.rows() == [
            (process(), "forward", 10**12, "bf16"),
            (process(), "backward", 2 * 10**12, "bf16"),
        ]


@pytest.mark.parametrize(
    "flops",
    [
        None,
        "many",
        {"unit": "bf16"},
        {"unit": "bf16", "phases": {}},
        {"unit": "int4", "phases": {"forward": 1}},
        {"unit": "bf16", "phases": {"forward": -1}},
        {"unit": "bf16", "phases": {"forward": True}},
        {"unit": "bf16", "phases": {"forward": 1.5}},
        {"unit": "bf16", "phases": {"forward": 1 << 63}},
        {"unit": ["bf16"], "phases": {"forward": 1}},
    ],
)
def test_flops_that_cannot_be_used_leave_the_rest_of_the_mark(flops: object) -> None:
    found = first_of_each([(1, mark(**WINDOW, flops=flops))])
    assert flops_rows(found).is_empty()
    assert capture_rows(found).rows() == [(1, "3:2:5", 7)]


def test_a_slim_mark_says_the_same_and_nothing_else() -> None:
    about = WINDOW | {"flops": FLOPS}
    slim = slim_mark(mark(**about, secret="x"))
    assert slim is not None
    assert json.loads(slim) == {"nsysflow": about}
    assert slim_mark(slim) == slim
    assert capture_of_mark(slim) == capture_of_mark(mark(**about))


def test_foreign_marks_are_ignored_and_impossible_times_null(tmp_path: Path) -> None:
    other = [mark(capture=3), mark(capture="/home/me/secret"), '{"nsysflow": ', '{"nsysflow": 3}']
    other += ['{"nsysflow": ' + "[" * 100_000, '{"other": {"capture": "3:2:5"}}', "[]", "nsysflow"]
    impossible = [mark(capture="3:2:5", unprofiled_step_ns=ns) for ns in (-4, 0, 10**30, 1.5, True)]
    pids = range(1, 1 + len(other) + len(impossible))
    marks = [
        event(text, thread(1, pid)) for pid, text in zip(pids, other + impossible, strict=True)
    ]
    captures = load(export(tmp_path / "r.sqlite", *marks)).captures
    assert captures.rows() == [(process(pid), "3:2:5", None) for pid in pids[len(other) :]]


def listed(clock_ns: int, *ranges: Any) -> str:
    """The text of a mark that lists the ranges of captured graphs."""
    return mark(clock_ns=clock_ns, graph_ranges=ranges)


def test_listed_ranges_move_by_the_smallest_difference_of_clocks(tmp_path: Path) -> None:
    forward = ("forward", None, 8_000, 8_400, 1002)
    step = ("step", "nsysflow.auto", 8_500, 8_600, 7)
    report = export(
        tmp_path / "r.sqlite",
        event(listed(9_000), start=100),
        event(listed(9_100), start=110),
        event(listed(9_200, forward, step), start=290),
        event(listed(2_000, ("b", None, 2_000, 2_001, 1)), thread(2000, 2000), start=6),
        *(event(listed(1, unusable)) for unusable in ([1, None, 2, 3, 4], ["a", None, -2, 3, 4])),
        event(mark(clock_ns=1, graph_ranges=7)),
    )
    other = process(2000)
    for trace in loaded_and_packed(report):
        assert trace.graph_ranges.rows() == [
            (-990, -590, "push_pop", process(), thread(1002), None, "forward", 0),
            (-490, -390, "push_pop", process(), thread(7), "nsysflow.auto", "step", 1),
            (6, 7, "push_pop", other, thread(1, 2000), None, "b", 2),
        ]


def test_a_kineto_trace_holds_the_window_beside_its_events(tmp_path: Path) -> None:
    call = traces.event("cuda_runtime", "cudaLaunchKernel", args={"correlation": 1})
    for about, rows in (({"nsysflow": WINDOW}, [(traces.PID << 24, "3:2:5", 7)]), ({}, [])):
        trace = load(traces.write(tmp_path, call, traces.kernel(), **about))
        assert trace.captures.rows() == rows


REAL = (
    '{"NCCL communicator ID":15653356006786056834,"Message size [bytes]":33554432,'
    '"Reduction operation":"Sum"}'
)
"""A payload as nsys 2025.3 exports it with --include-json=true."""


def test_a_payload_has_size_and_communicator_and_a_slim_one_nothing_else() -> None:
    slim = slim_payload(REAL)
    assert slim is not None
    assert sent(slim) == sent(REAL) == (33_554_432, 15_653_356_006_786_056_834)
    assert set(json.loads(slim)) == {"NCCL communicator ID", "Message size [bytes]"}
    assert slim_payload(slim) == slim


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", '"Message size [bytes]"', "[" * 100_000, '{"No. of ranks":2,"Rank":0}'),
        *(f'{{"Message size [bytes]":{n}}}' for n in ('"33"', -1, 9223372036854775808, "true")),
    ],
)
def test_a_payload_without_a_usable_size_is_left_out(text: str) -> None:
    assert sent(text)[0] is None
    assert slim_payload(text) is None
