"""Managed memory that moves page by page."""

from collections.abc import Iterator
from dataclasses import replace

import nsysflow
from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.managed_memory import managed_memory
from tests import tiny
from tests.analysis.findings.subjects import US, Row, found, launched, loop
from tests.oracle.model import Device, Op, Shape, to_trace
from tests.tiny import AS_RECORDED, plain_of


def pages(start: int, i: int, count: int = 6) -> Iterator[Row]:
    """A kernel of 700 us; pages come to it from 50 us on, one each 100 us, and then go back one by
    one: each takes 20 us, and no call launches them."""
    yield from launched(start, 100 * i + 1, at=0, took=5, kernel_ns=700 * US, queued=5)
    for turn, way in enumerate(["UVM HtoD"] * count + ["UVM DtoH"] * count):
        at = start + (60 + 100 * turn + 160 * (way == "UVM DtoH")) * US
        yield tiny.copy(at, at + 20 * US, None, way, "managed", "managed")


def test_managed_memory_that_moves_page_by_page_is_a_finding_for_each_direction() -> None:
    come, go = found(managed_memory, loop(pages, every=2_000))
    assert come.title == "6.00 kB of managed memory come to the GPU page by page while k runs"
    assert come.at_most_ns == 520 * US  # from the first page to the last
    assert (come.culprit, go.culprit) == ("k", "memcpy UVM DtoH")
    # 20 us of each page, 80 us between two, and 110 us between the kernel and the first
    assert go.at_most_ns == (6 * 20 + 5 * 80 + 110) * US
    assert "cudaCpuDeviceId" in go.change[0]


def on_one_thread(start: int, i: int) -> Iterator[Row]:
    """The same kernel for 7 ms, in one thread; the last page comes to it at 6.6 ms."""
    for row in pages(start, i):
        if isinstance(row, Op) and not row.copy:
            row = replace(row, end_ns=row.start_ns + 7_000 * US, shape=Shape(block_x=1))
        yield row
    at = start + 6_600 * US
    yield tiny.copy(at, at + 20 * US, None, "UVM HtoD", "managed", "managed")


def serial() -> JudgedReport:
    """Steps with such a kernel on a GPU of 100 SMs."""
    rows = []
    for i in range(8):
        start = i * 9_000 * US
        rows += [tiny.opened(start, start + 9_000 * US - 1, "step"), *on_one_thread(start, i)]
    device = Device(device=0, name=None, uuid=None, sm_count=100, memory_bytes_per_s=None)
    plain = replace(plain_of(*rows), devices=(device,))
    return JudgedReport(nsysflow.analyze(to_trace(plain), replace(AS_RECORDED, skip=0)))


def test_a_kernel_of_one_thread_computes_while_pages_come() -> None:
    (come,) = found(managed_memory, serial())
    # 7 pages with 20 us each, and 100 us each for the fault; from first to last it is 6,560 us
    assert come.at_most_ns == 7 * (20 + 100) * US
    assert "of that at most 840 us is theirs, 100 us a piece; in the rest it computes" in (
        come.evidence
    )


def test_the_page_says_first_that_a_kernel_runs_as_one_thread() -> None:
    one, *_ = (each.finding for each in find(serial()).valued)
    assert (one.rule, one.title) == (
        "small-grid",
        "k runs as 1 block of 1 thread: 100 % of kernel time",
    )
    assert one.at_most_ns == round(7_000 * US * (1 - 1 / 100))  # on each of 100 SMs a block


def test_a_host_that_reads_what_comes_back_computes_between_two_pages() -> None:
    def read(start: int, i: int) -> Iterator[Row]:
        yield from launched(start, 100 * i + 1, at=0, took=5, kernel_ns=700 * US)
        for turn in range(4):  # a page each ms
            at = start + (1_000 + 1_000 * turn) * US
            yield tiny.copy(at, at + 20 * US, None, "UVM DtoH", "managed", "managed")

    (go,) = found(managed_memory, loop(read, every=6_000))
    assert go.at_most_ns == 4 * (20 + 100) * US
    assert "of that at most 400 us is theirs, 100 us a piece; in the rest the host computes" in (
        go.evidence
    )


def test_kernels_that_wait_for_pages_are_not_told_to_compute_less() -> None:
    valued = find(loop(pages, every=1_300)).valued
    assert {one.finding.rule for one in valued} == {"managed-memory"}
    # though the kernel runs meanwhile
    assert max(one.high_ns for one in valued if "come to the GPU" in one.finding.title) > 400 * US


def test_a_few_pages_and_those_as_large_as_a_prefetch_makes_are_none() -> None:
    def prefetched(start: int, i: int) -> Iterator[Row]:
        for row in pages(start, i):
            if isinstance(row, Op) and row.copy:
                row = replace(row, copy=replace(row.copy, bytes=2 << 20))
            yield row

    assert not found(managed_memory, loop(prefetched, every=2_000))
    assert not found(managed_memory, loop(lambda start, i: pages(start, i, 1), every=10_000))
