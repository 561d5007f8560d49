"""Streams of which only one at a time has work, and communication that kernels wait for."""

from dataclasses import replace
from typing import Any, Final

import pytest

import nsysflow
from nsysflow.analysis.findings.frameworks import advised
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.communication import exposed_communication
from nsysflow.analysis.findings.rules.streams import streams_in_turn
from tests import tiny
from tests.analysis.findings.subjects import US, Row, asked, found, launched, left_of, loop, one_gpu
from tests.in_us import opened
from tests.oracle.model import EventRecord, EventWait, Shape, to_trace

MAIN: Final = 7
WAIT: Final = "cudaStreamWaitEvent"


def streams(
    *lengths: int,
    blocks: int = 10,
    apart_us: int = 1,
    chained: bool = False,
    late: bool = False,
    main_between: bool = False,
    copies: bool = False,
) -> JudgedReport:
    """A kernel on the main stream; one on each of some streams that wait for it, of so many us and
    `blocks` on 100 SMs, each `apart_us` after the end of the one before; one that waits for all.

    Args:
        chained: each stream also waits for the one before it.
        late: each is launched when the one before it is done.
        main_between: the main stream runs a kernel between two of them.
        copies: all but the first stream copy.
    """
    rows: list[Row] = []
    records, waits = [], []
    number, begins = 0, 1_000 * US

    def at() -> int:
        return (begins - US if late else 0) + number * 10

    def run(stream: int, us: int) -> None:
        nonlocal number, begins
        number += 1
        rows.append(tiny.launch(at(), at() + 5, number))
        end = begins + us * US
        op = replace(tiny.kernel(begins, end, number, name=f"k{us}"), shape=Shape(grid_x=blocks))
        if copies and stream > MAIN + 1:
            op = tiny.copy(begins, end, number, "HtoD", "pinned", "device")
        rows.append(tiny.on_stream(op, stream))
        begins += (us + apart_us) * US

    def wait(stream: int, awaited: int) -> None:
        nonlocal number
        number += 2
        rows.append(tiny.launch(at() - 10, at() - 9, number - 1, name="cudaEventRecord"))
        rows.append(tiny.launch(at(), at() + 1, number, name=WAIT))
        records.append(EventRecord(tiny.PROCESS, 0, number - 1, awaited, number))
        waits.append(EventWait(tiny.PROCESS, 0, number, stream, number))

    run(MAIN, 1)
    side = [*range(MAIN + 1, MAIN + 1 + len(lengths))]
    for stream in side:
        wait(stream, MAIN)
    for stream, us in zip(side, lengths, strict=True):
        if chained and stream > side[0]:
            wait(stream, stream - 1)
        run(stream, us)
        if main_between:
            run(MAIN, 30)
    for stream in side:
        wait(MAIN, stream)
    run(MAIN, 1)
    plain = replace(
        tiny.plain_of(*rows),
        devices=one_gpu("a GPU"),
        event_records=tuple(records),
        waits=tuple(waits),
    )
    return JudgedReport(nsysflow.analyze(to_trace(plain)))


def test_streams_in_turn_could_take_as_long_as_the_longest() -> None:
    one = asked(streams_in_turn, streams(40, 30, 20))
    assert one.title.startswith("3 streams, each waiting for the one before")
    assert "if the streams do not need each other's results" in one.change[0]
    assert one.method == "bound"
    assert one.size_ns == 50 * US
    assert left_of(one) == {"k40": 0.44, "k30": 0.44, "k20": 0.44}  # 40 of 90
    assert any("40.0 us, 30.0 us, 20.0 us" in sentence for sentence in one.evidence)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"apart_us": -8}, id="beside each other"),
        pytest.param({"blocks": 50}, id="without room on the chip"),
        pytest.param({"chained": True}, id="told to wait for one another"),
        pytest.param({"late": True}, id="launched late"),
        pytest.param({"main_between": True}, id="main works between"),
        pytest.param({"copies": True}, id="only copies"),
    ],
)
def test_nothing_is_said_of_streams(more: dict[str, Any]) -> None:
    assert not found(streams_in_turn, streams(40, 30, 20, **more))


def test_nothing_is_said_where_nearly_all_is_on_one_stream() -> None:
    assert not found(streams_in_turn, streams(100, 2, 2))


@pytest.mark.parametrize(
    ("kernel", "phase", "advice"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(T1)", "backward", "backward goes on"),
        ("ncclDevKernel_SendRecv(T1)", "embed", "exchange ahead"),
        ("ncclDevKernel_Generic(T1)", "nccl:all_to_all", "exchange ahead"),
    ],
)
def test_an_exchange_of_all_with_all_is_told_how_to_hide_it(
    kernel: str, phase: str, advice: str
) -> None:
    sent = opened(20, 40, phase), *launched(25, 60, queued=40, name=kernel)
    rows = *launched(10, 50), *sent, *launched(45, 50, queued=81)
    assert advice in asked(exposed_communication, loop(rows, every=200)).change[0]


@pytest.mark.parametrize(
    ("kernel", "phase", "advice"),
    [
        ("void at::native::add<float>(T1)", "forward", "fewer GPUs for one model"),
        ("void at::native::add<float>(T1)", "FSDP::pre_forward (layers.0)", "FSDP: "),
        ("void at::native::add_backward<float>(T1)", "forward", "backward goes on"),
        ("void at::native::add<float>(T1)", "backward", "backward goes on"),
    ],
)
def test_a_model_without_a_backward_pass_is_not_told_to_send_during_it(
    kernel: str, phase: str, advice: str
) -> None:
    """Four layers in tensor parallel, forward alone, were (tokenomics-from-first-principles)."""
    sent = launched(25, 60, queued=40, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(T1)")
    works = *launched(10, 50, name=kernel), *sent, *launched(45, 50, queued=81, name=kernel)
    subject = loop((opened(1, 60, phase), *works), every=200)
    finding = advised(asked(exposed_communication, subject), subject.frameworks)
    assert advice in finding.change[0]
