"""Communication that kernels wait for."""

from collections.abc import Iterator

import pytest

from nsysflow.analysis.findings.rules.communication import exposed_communication
from tests import tiny
from tests.analysis.findings.subjects import US, Row, asked, launched, loop, named


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
    def rows(start: int, i: int) -> Iterator[Row]:
        yield from launched(start, 100 * i + 1, at=10, took=5, kernel_ns=50 * US)
        yield tiny.opened(start + 20 * US, start + 40 * US, phase)
        yield tiny.launch(start + 25 * US, start + 30 * US, 100 * i + 2)
        sent = tiny.kernel(start + 70 * US, start + 130 * US, 100 * i + 2)
        yield named(sent, kernel)
        yield from launched(start, 100 * i + 3, at=45, took=5, kernel_ns=50 * US, queued=81)

    finding = asked(exposed_communication, loop(rows, every=200))
    assert finding is not None
    assert advice in finding.change[0]
