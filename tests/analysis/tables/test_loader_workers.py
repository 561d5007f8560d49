"""Table loader_workers."""

from dataclasses import replace
from typing import Any, Final

import pytest

import nsysflow
from tests.agreement import assert_pictures_agree
from tests.analyses import SCHEMAS, rows_of
from tests.oracle.loaders import loader_workers
from tests.oracle.model import LoaderTime, PlainTrace, to_trace
from tests.oracle.report import Report
from tests.oracle.steps import kinds_of, steps_of
from tests.tiny import PROCESS, Row, kernel, launch, opened, plain_of

MS: Final = 1_000_000


def steps(*times: LoaderTime, count: int = 6) -> PlainTrace:
    """Steps of 10 ms, with a kernel each; and what loaders did."""
    rows: list[Row] = []
    for number in range(count):
        at = 10 * MS * number
        rows += [opened(at, at + 10 * MS, "step"), launch(at + 1, at + 2, number + 1)]
        rows.append(kernel(at + 3, at + 5 * MS, number + 1))
    return replace(plain_of(*rows), loader_times=times)


def batch(worker: int | None, start: float, fetched: float, end: float, **more: Any) -> LoaderTime:
    """A batch, its times in ms."""
    about = {"process": PROCESS, "loader": 0, "workers": 2, "cores": 8, **more}
    at, until = round(start * MS), round(end * MS)
    fetched_ns = None if worker is None else round(fetched * MS)
    return LoaderTime(worker=worker, start_ns=at, fetched_ns=fetched_ns, end_ns=until, **about)


def wait(start: float, end: float, **more: Any) -> LoaderTime:
    """A wait of the loop."""
    return batch(None, start, end, end, **more)


PICTURES: Final[dict[str, PlainTrace]] = {
    "two workers": steps(
        batch(0, 0, 8, 9), batch(1, 1, 7, 8), batch(0, 9, 18, 19), wait(0, 9), wait(15, 19)
    ),
    "over the edges": steps(batch(0, -5, 3, 4), batch(1, 55, 58, 80), batch(0, -9, -8, -7)),
    "one holds another": steps(batch(0, 0, 30, 40), batch(0, 10, 12, 15), batch(0, 35, 41, 50)),
    "of no time": steps(batch(0, 5, 5, 5), batch(0, 60, 60, 60), batch(0, 0, 0, 0)),
    "ends before it begins": steps(batch(0, 5, 5, 4), batch(1, 5, 5, 6)),
    "all end before they begin": steps(batch(0, 5, 5, 4)),
    "without workers": steps(wait(0, 7, workers=0), wait(10, 17, workers=0)),
    "settings unknown": steps(wait(0, 7, workers=None), batch(1, 1, 2, 3, workers=None)),
    "two loaders, one without the other's workers": steps(
        batch(0, 0, 5, 6), wait(3, 6), wait(20, 25, loader=1, workers=0)
    ),
    "a process without work": steps(batch(0, 0, 5, 6, process=PROCESS + (1 << 24))),
    "no steps": replace(
        plain_of(launch(0, 1, 1), kernel(2, 10 * MS, 1)), loader_times=(batch(0, 1, 4, 5),)
    ),
}


def test_pictures_of_loaders_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


@pytest.mark.parametrize("name", PICTURES)
def test_the_judged_steps_have_the_oracles_rows(name: str) -> None:
    report = Report(PICTURES[name])
    judged = [step for step in steps_of(report) if kinds_of(report)[step].name == "steady"]
    columns = [*SCHEMAS["loader_workers"]]
    found = nsysflow.analyze(to_trace(PICTURES[name])).judged.loader_workers
    expected = loader_workers(report, judged or None)
    assert rows_of(found.to_dicts(), columns) == rows_of(expected, columns)


def test_a_worker_is_busy_from_its_request_until_it_has_sent_the_batch() -> None:
    trace = to_trace(PICTURES["two workers"])
    table = nsysflow.analyze(trace).loader_workers
    shown = "worker batches busy_ns waiting_ns fetch_median_ns steps waited_ns"
    assert table.select(shown.split()).rows() == [
        (None, 3, 26 * MS, 12 * MS + 2, 8 * MS, 2, 13 * MS),
        (0, 2, 19 * MS, 1, 8.5 * MS, None, None),
        (1, 1, 7 * MS, 12 * MS + 1, 6 * MS, None, None),
    ]
    assert table["busy_pct"].round(1).to_list() == [68.4, 100, 36.8]
    assert table["batches_per_s"].round().to_list() == [158, 105, 53]
