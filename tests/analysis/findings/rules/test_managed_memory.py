"""Managed memory that moves page by page."""

from dataclasses import replace

from nsysflow.analysis.findings.findings import find
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.rules.managed_memory import managed_memory
from tests.analysis.findings.subjects import (
    US,
    Row,
    found,
    judged,
    launched,
    loop,
    one_gpu,
    repeated,
)
from tests.in_us import copy, opened
from tests.oracle.model import Shape


def page(at: int, way: str = "HtoD", *, moved: int = 1_000) -> Row:
    """A page that no call launches, in 20 us."""
    return copy(at, at + 20, None, f"UVM {way}", "managed", "managed", moved=moved)


KERNEL = launched(0, 700, queued=5)


def pages(count: int = 6, *, moved: int = 1_000) -> list[Row]:
    """A kernel of 700 us; pages come to it from 50 us on, one each 100 us, and then go back one by
    one."""
    come = [page(60 + 100 * turn, moved=moved) for turn in range(count)]
    return [
        *KERNEL,
        *come,
        *(page(220 + 100 * (count + n), "DtoH", moved=moved) for n in range(count)),
    ]


def test_managed_memory_that_moves_page_by_page_is_a_finding_for_each_direction() -> None:
    come, go = found(managed_memory, loop(pages(), every=2_000))
    assert come.title == "6.00 kB of managed memory come to the GPU page by page while k runs"
    assert come.at_most_ns == 520 * US  # from the first page to the last
    assert (come.culprit, go.culprit) == ("k", "memcpy UVM DtoH")
    # 20 us of each page, 80 us between two, and 110 us between the kernel and the first
    assert go.at_most_ns == (6 * 20 + 5 * 80 + 110) * US
    assert "cudaCpuDeviceId" in go.change[0]


def serial() -> JudgedReport:
    """The same kernel for 7 ms, in one thread of 100 SMs; the last page comes to it at 6.6 ms."""
    call, op = launched(0, 7_000, queued=5)
    one_thread = call, replace(op, shape=Shape(block_x=1)), *pages()[2:], page(6_600)
    step = opened(0, 9_000, "step"), *one_thread
    return judged(*repeated(step, 9_000), devices=one_gpu(None))


def test_a_kernel_of_one_thread_computes_while_pages_come() -> None:
    (come,) = found(managed_memory, serial())
    # 7 pages with 20 us each, and 100 us each for the fault; from first to last it is 6,560 us
    assert come.at_most_ns == 7 * (20 + 100) * US
    said = "of that at most 840 us is theirs, 100 us a piece; in the rest it computes"
    assert said in come.evidence


def test_the_page_says_first_that_a_kernel_runs_as_one_thread() -> None:
    one = find(serial()).valued[0].finding
    assert one.rule == "small-grid"
    assert one.title == "k runs as 1 block of 1 thread: 100 % of kernel time"
    assert one.at_most_ns == round(7_000 * US * (1 - 1 / 100))  # on each of 100 SMs a block


def test_a_host_that_reads_what_comes_back_computes_between_two_pages() -> None:
    read = *KERNEL, *(page(1_000 + 1_000 * turn, "DtoH") for turn in range(4))
    (go,) = found(managed_memory, loop(read, every=6_000))
    assert go.at_most_ns == 4 * (20 + 100) * US
    said = "of that at most 400 us is theirs, 100 us a piece; in the rest the host computes"
    assert said in go.evidence


def test_kernels_that_wait_for_pages_are_not_told_to_compute_less() -> None:
    valued = find(loop(pages(), every=1_300)).valued
    assert {one.finding.rule for one in valued} == {"managed-memory"}
    # though the kernel runs meanwhile
    assert max(one.high_ns for one in valued if "come to the GPU" in one.finding.title) > 400 * US


def test_a_few_pages_and_those_as_large_as_a_prefetch_makes_are_none() -> None:
    assert not found(managed_memory, loop(pages(moved=2 << 20), every=2_000))
    assert not found(managed_memory, loop(pages(1), every=10_000))
