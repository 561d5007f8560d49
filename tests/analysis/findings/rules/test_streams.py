"""Streams of which only one at a time has work."""

from dataclasses import replace
from typing import Final

import pytest

import nsysflow
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.streams import streams_in_turn
from tests import tiny
from tests.analysis.findings.subjects import US, Row, asked, left_of
from tests.oracle.model import Device, EventRecord, EventWait, Shape, to_trace

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
    device = Device(device=0, name="a GPU", uuid=None, sm_count=100, memory_bytes_per_s=None)
    plain = replace(tiny.plain_of(*rows), devices=(device,))
    plain = replace(plain, event_records=tuple(records), waits=tuple(waits))
    return JudgedReport(nsysflow.analyze(to_trace(plain)))


def test_streams_in_turn_could_take_as_long_as_the_longest() -> None:
    found = asked(streams_in_turn, streams(40, 30, 20))
    assert found is not None
    assert found.title.startswith("3 streams, each waiting for the one before")
    assert "if the streams do not need each other's results" in found.change[0]
    assert found.method == "bound"
    assert found.size_ns == 50 * US
    assert left_of(found) == {"k40": 0.44, "k30": 0.44, "k20": 0.44}  # 40 of 90
    assert any("40.0 us, 30.0 us, 20.0 us" in sentence for sentence in found.evidence)


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(streams(40, 30, 20, apart_us=-8), id="beside each other"),
        pytest.param(streams(40, 30, 20, blocks=50), id="without room on the chip"),
        pytest.param(streams(40, 30, 20, chained=True), id="told to wait for one another"),
        pytest.param(streams(40, 30, 20, late=True), id="launched late"),
        pytest.param(streams(40, 30, 20, main_between=True), id="main works between"),
        pytest.param(streams(40, 30, 20, copies=True), id="only copies"),
        pytest.param(streams(100, 2, 2), id="nearly all on one"),
    ],
)
def test_nothing_is_said_of_streams(subject: JudgedReport) -> None:
    assert asked(streams_in_turn, subject) is None
