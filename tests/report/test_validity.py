from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.schema import BACKTRACES
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.report.results import Origin
from nsysflow.report.validity import Invalid, are_named_as_ranks, failures
from tests.report.handmade import Handmade, Results, handmade, renamed, two_ranks

BLIND = FailedCheck(check=Check.NO_KERNELS, count=9, of=0)
LOST = FailedCheck(
    check=Check.INCOMPLETE, count=2185, of=5925, start_ns=8_669_890_898, end_ns=9 * 10**9
)


def failing(failed: FailedCheck, report: str = "run.sqlite", source: str = "by hand") -> Handmade:
    run = renamed(replace(handmade(), failed_checks=(failed,)), report)
    return replace(run, trace=replace(run.trace, source=source))


def only(*runs: Handmade, origin: Origin | None = None) -> Invalid:
    (found,) = failures(Results(runs, origin=origin))
    return found


def test_without_a_kernel_the_versions_are_named_where_they_are_known() -> None:
    unknown = only(failing(BLIND))
    assert unknown.sentence == "No kernel in this report: nsys is probably older than the driver"
    run = failing(BLIND, source="Nsight Systems 2023.4.1.97, schema 3.11.0")
    known = only(run, origin=Origin(versions={"driver": "580.65"}))
    sentence = unknown.sentence.replace("nsys", "nsys 2023.4.1.97") + " (580.65)"
    advice = "record again with a newer nsys"
    assert known == Invalid(why="no-kernels", sentence=sentence, advice=advice)


@pytest.mark.parametrize(
    ("failed", "origin", "says", "advises"),
    [
        # without a launch another reason is possible
        (replace(BLIND, count=0), None, "probably older", "with cuda in --trace"),
        (replace(BLIND, count=0, of=5), None, "launches none", "if it should launch"),
        # of a program that was killed, not the age of nsys
        (BLIND, Origin(killed=True), "os._exit or a signal ended", "close() and join()"),
        (replace(BLIND, count=0), Origin(killed=True), "older than", ""),
        (LOST, None, "Incomplete capture: 2,185 of 5,925 launches have no operation"
         " (from 8.669891 s to 9.000000 s)", ""),
        (FailedCheck(check=Check.UNSTAMPED, count=688, of=6892), None,
         "Incomplete capture: 688 of 6,892 operations are", ""),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=1, of=0), None,
         "Incomplete capture: nsys reported an error while", "with a newer nsys"),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0), None,
         "Incomplete capture: nsys reported 2 errors while", ""),
    ],
)  # fmt: skip
def test_a_failed_check_says_what_is_wrong_and_what_to_do(
    failed: FailedCheck, origin: Origin | None, says: str, advises: str
) -> None:
    found = only(failing(failed), origin=origin)
    assert says in found.sentence
    assert advises in found.advice


def test_a_report_without_kernels_fails_alone_and_where_there_was_a_gpu() -> None:
    assert failures(Results([failing(BLIND)], origin=Origin(on_cpu=True))) == ()
    assert failures(Results([failing(BLIND, "rank0"), renamed(handmade(), "rank1")])) == ()


def unrelated(**origin: Any) -> tuple[Invalid, ...]:
    runs = [renamed(handmade(), name) for name in ("a b.sqlite", "c.sqlite")]
    return failures(Results(runs, origin=Origin(**origin)))


def test_reports_without_a_common_collective_are_to_be_analysed_by_themselves() -> None:
    (found,) = unrelated(paths={"a b.sqlite": Path("runs/a b.sqlite")})
    assert found == Invalid(
        why="unrelated-reports",
        sentence="These do not look like ranks of one run",
        advice="analyse each by itself: nsysflow analyze 'runs/a b.sqlite'",
    )


def test_a_manifest_or_a_common_collective_makes_ranks_whatever_their_names() -> None:
    assert unrelated(ranks=True) == ()
    ranks = [renamed(run, name) for run, name in zip(two_ranks(), "ab", strict=True)]
    assert failures(Results(ranks)) == ()


@pytest.mark.parametrize(
    ("names", "ranks"),
    [
        (("ddp-rank0", "ddp-rank1"), True),
        (("Rank_3.x", "other-rank12"), True),
        (("prof.0", "prof.1", "prof.2"), True),
        (("run/0/report", "run/1/report"), True),
        (("report1", "report2"), False),
        (("prof.0", "prof.2"), False),
        (("run0-gpu0", "run1-gpu1"), False),
        (("before", "after"), False),
        (("eager", "eager0"), False),
    ],
)
def test_names_tell_ranks_from_runs(names: tuple[str, ...], ranks: bool) -> None:
    assert are_named_as_ranks(names) == ranks


def without_import(run: Handmade) -> Handmade:
    """The run, with backtraces, of which nsys could not import all."""
    backtraces = pl.DataFrame([(1, 2, 3)], schema=BACKTRACES, orient="row")
    text = "Cannot find string for an exterior index"
    diagnostics = pl.DataFrame({"text": [text]})
    return replace(run, trace=replace(run.trace, backtraces=backtraces, diagnostics=diagnostics))


@pytest.mark.parametrize(
    ("failed", "says"),
    [
        (FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0), "2 errors while importing"),
        (BLIND, "No kernel in this report: nsys reported an error while importing the recording"),
    ],
)
def test_after_an_import_error_stacks_go_first(failed: FailedCheck, says: str) -> None:
    found = only(without_import(failing(failed)))
    assert says in found.sentence
    assert "nsysflow profile --backtrace none --sample-python 0" in found.advice


def test_after_an_import_error_of_a_jax_program_ranges_of_xla_go_first() -> None:
    run = without_import(failing(FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0)))
    ranges = pl.DataFrame({"name": ["XlaModule:#hlo_module=jit_step,program_id=7#"]})
    found = only(replace(run, trace=replace(run.trace, ranges=ranges)))
    assert "XLA's ranges: nsysflow profile --nsys-arg=--nvtx-domain-exclude=TSL" in found.advice
