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
from nsysflow.analysis.load.pack import pack
from tests.analysis.load.kineto import traces
from tests.exports import process, thread, write_export

WINDOW = '{"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 4500000}}'
FLOPS = {"unit": "bf16", "phases": {"forward": 10**12, "backward": 2 * 10**12}}


def mark(**more: Any) -> str:
    """The text of a mark."""
    return json.dumps({"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 7, **more}})


def event(text: str | None, tid: int = thread(), **columns: Any) -> dict[str, Any]:
    """A mark as an NVTX event."""
    return {"eventType": 34, "text": text, "globalTid": tid, "end": None, **columns}


def export(path: Path, nvtx: list[dict[str, Any]]) -> Path:
    return write_export(path, kernels=[{}], calls=[{}], nvtx=nvtx)


def test_a_mark_declares_flops_by_phase() -> None:
    found = first_of_each([(1, mark(flops=FLOPS))])
    assert flops_rows(found).rows() == [
        (1, "forward", 10**12, "bf16"),
        (1, "backward", 2 * 10**12, "bf16"),
    ]


def test_the_first_mark_of_a_process_counts() -> None:
    other = {"unit": "tf32", "phases": {"forward": 5}}
    marks = [(1, mark(flops=FLOPS)), (1, mark(flops=other)), (2, mark(flops=other))]
    found = flops_rows(first_of_each(marks))
    assert found.filter(process=2).rows() == [(2, "forward", 5, "tf32")]
    assert found.height == 3


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
    found = first_of_each([(1, mark(flops=flops))])
    assert flops_rows(found).is_empty()
    assert capture_rows(found).rows() == [(1, "3:2:5", 7)]


def test_a_slim_mark_says_the_same_and_nothing_else() -> None:
    slim = slim_mark(mark(flops=FLOPS, secret="x"))
    assert slim is not None
    about = {"capture": "3:2:5", "unprofiled_step_ns": 7, "flops": FLOPS}
    assert json.loads(slim) == {"nsysflow": about}
    assert slim_mark(slim) == slim
    assert capture_of_mark(slim) == capture_of_mark(mark(flops=FLOPS))


def test_each_process_has_its_own_window(tmp_path: Path) -> None:
    other = thread(2000, 2000)
    marks = [event("hello"), event(WINDOW), event('{"nsysflow": {"capture": "0:0:1"}}', other)]
    path, packed = export(tmp_path / "r.sqlite", marks), tmp_path / "packed.sqlite"
    pack(path, packed)
    for report in (path, packed):
        assert load(report).captures.rows() == [
            (process(), "3:2:5", 4_500_000),
            (process(2000), "0:0:1", None),
        ]


def test_the_first_mark_of_a_process_counts_registered_or_not(tmp_path: Path) -> None:
    marks = [event(None, textId=WINDOW), event('{"nsysflow": {"capture": "9:9:9"}}')]
    path, packed = export(tmp_path / "r.sqlite", marks), tmp_path / "packed.sqlite"
    pack(path, packed)
    for report in (path, packed):
        assert load(report).captures.rows() == [(process(), "3:2:5", 4_500_000)]


@pytest.mark.parametrize(
    "text",
    [
        '{"nsysflow": ',
        '{"nsysflow": 3}',
        '{"nsysflow": {"capture": 3}}',
        '{"nsysflow": {"capture": "/home/me/secret"}}',
        '{"nsysflow": ' + "[" * 100_000,
        '{"other": {"capture": "3:2:5"}}',
        "[]",
        "nsysflow",
    ],
)
def test_a_mark_of_another_kind_is_ignored(tmp_path: Path, text: str) -> None:
    assert load(export(tmp_path / "r.sqlite", [event(text)])).captures.is_empty()


@pytest.mark.parametrize("step_ns", ["-4", "0", "9" * 30, "1.5", "true"])
def test_an_impossible_step_time_is_null(tmp_path: Path, step_ns: str) -> None:
    text = f'{{"nsysflow": {{"capture": "3:2:5", "unprofiled_step_ns": {step_ns}}}}}'
    captures = load(export(tmp_path / "r.sqlite", [event(text)])).captures
    assert captures.rows() == [(process(), "3:2:5", None)]


def test_a_packed_mark_holds_nothing_but_the_window(tmp_path: Path) -> None:
    text = '{"nsysflow": {"capture": "3:2:5", "host": "secret-host"}, "more": "secret-more"}'
    path, packed = export(tmp_path / "r.sqlite", [event(text)]), tmp_path / "packed.sqlite"
    pack(path, packed)
    assert load(packed).captures.rows() == [(process(), "3:2:5", None)]
    assert b"secret" not in packed.read_bytes()


def listed(clock_ns: int, *ranges: tuple[str, str | None, int, int, int]) -> str:
    """The text of a mark that lists the ranges of captured graphs."""
    return json.dumps({"nsysflow": {"clock_ns": clock_ns, "graph_ranges": ranges}})


def test_listed_ranges_are_moved_by_the_smallest_difference_of_the_clocks(tmp_path: Path) -> None:
    forward, step = (
        ("forward", None, 8_000, 8_400, 1002),
        ("step", "nsysflow.auto", 8_500, 8_600, 7),
    )
    marks = [
        event(listed(9_000), start=100),
        event(listed(9_100), start=110),
        event(listed(9_200, forward, step), start=290),
    ]
    path, packed = export(tmp_path / "r.sqlite", marks), tmp_path / "packed.sqlite"
    pack(path, packed)
    for report in (path, packed):
        assert load(report).graph_ranges.rows() == [
            (-990, -590, "push_pop", process(), thread(1002), None, "forward", 0),
            (-490, -390, "push_pop", process(), thread(7), "nsysflow.auto", "step", 1),
        ]


def test_each_process_has_its_own_clock(tmp_path: Path) -> None:
    marks = [
        event(listed(1_000, ("a", None, 1_000, 1_001, 1)), start=5),
        event(listed(2_000, ("b", None, 2_000, 2_001, 1)), thread(2000, 2000), start=6),
    ]
    ranges = load(export(tmp_path / "r.sqlite", marks)).graph_ranges
    assert ranges.select("start_ns", "process").rows() == [(5, process()), (6, process(2000))]


@pytest.mark.parametrize("ranges", ["[[1, null, 2, 3, 4]]", '[["a", null, -2, 3, 4]]', "7"])
def test_a_list_of_ranges_that_cannot_be_used_is_ignored(tmp_path: Path, ranges: str) -> None:
    text = f'{{"nsysflow": {{"clock_ns": 1, "graph_ranges": {ranges}}}}}'
    assert load(export(tmp_path / "r.sqlite", [event(text)])).graph_ranges.is_empty()


def test_a_kineto_trace_holds_the_window_beside_its_events(tmp_path: Path) -> None:
    events = (
        traces.event("cuda_runtime", "cudaLaunchKernel", args={"correlation": 1}),
        traces.kernel(),
    )
    about = json.loads(WINDOW)
    assert load(traces.write(tmp_path, *events, **about)).captures.rows() == [
        (813 << 24, "3:2:5", 4_500_000)
    ]
    assert load(traces.write(tmp_path, *events)).captures.is_empty()


REAL = (
    '{"NCCL communicator ID":15653356006786056834,"Message size [bytes]":33554432,'
    '"Reduction operation":"Sum"}'
)
"""A payload as nsys 2025.3 exports it with --include-json=true."""


def test_a_real_payload_has_size_and_communicator() -> None:
    assert sent(REAL) == (33_554_432, 15_653_356_006_786_056_834)


def test_a_slim_payload_has_only_size_and_communicator() -> None:
    slim = slim_payload(REAL)
    assert slim is not None
    assert sent(slim) == sent(REAL)
    assert set(json.loads(slim)) == {"NCCL communicator ID", "Message size [bytes]"}
    assert slim_payload(slim) == slim


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '"Message size [bytes]"',
        "[" * 100_000,
        '{"No. of ranks":2,"Rank":0}',
        '{"Message size [bytes]":"33"}',
        '{"Message size [bytes]":-1}',
        '{"Message size [bytes]":9223372036854775808}',
        '{"Message size [bytes]":true}',
    ],
)
def test_a_payload_without_a_usable_size_is_left_out(text: str) -> None:
    assert sent(text)[0] is None
    assert slim_payload(text) is None
