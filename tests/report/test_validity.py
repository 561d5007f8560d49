"""What is said of a recording that is not fit to be judged."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.notes import Note, NoteKind
from nsysflow.analysis.schema import BACKTRACES
from nsysflow.analysis.tables.validity import Check, FailedCheck
from nsysflow.report.results import Origin
from nsysflow.report.validity import Invalid, are_named_as_ranks, failures
from tests.analyses import analysed
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


def test_a_sound_report_fails_nothing() -> None:
    assert failures(Results([handmade()])) == ()


def test_without_a_kernel_the_versions_are_named_where_they_are_known() -> None:
    unknown = only(failing(BLIND))
    assert unknown.sentence == ("No kernel in this report: nsys is probably older than the driver")
    run = failing(BLIND, source="Nsight Systems 2023.4.1.97, schema 3.11.0")
    known = only(run, origin=Origin(versions={"driver": "580.65"}))
    assert known == Invalid(
        why="no-kernels",
        sentence=(
            "No kernel in this report: nsys 2023.4.1.97 is probably older than the driver (580.65)"
        ),
        advice="record again with a newer nsys",
    )


@pytest.mark.parametrize(
    ("copies", "says", "advises"),
    [(0, "probably older", "with cuda in --trace"), (5, "launches none", "if it should launch")],
)
def test_without_a_launch_another_reason_is_possible(copies: int, says: str, advises: str) -> None:
    found = only(failing(replace(BLIND, count=0, of=copies)))
    assert says in found.sentence
    assert advises in found.advice


def test_kernels_of_a_program_that_was_killed_are_not_blamed_on_the_age_of_nsys() -> None:
    found = only(failing(BLIND), origin=Origin(killed=True))
    assert "os._exit or a signal ended the program" in found.sentence
    assert "close() and join()" in found.advice
    nothing_launched = only(failing(replace(BLIND, count=0)), origin=Origin(killed=True))
    assert "older than" in nothing_launched.sentence


def test_a_run_on_the_cpu_has_no_kernels_to_miss() -> None:
    assert failures(Results([failing(BLIND)], origin=Origin(on_cpu=True))) == ()


def test_one_rank_without_kernels_does_not_fail_the_others() -> None:
    ranks = [failing(BLIND, "rank0"), renamed(handmade(), "rank1")]
    assert failures(Results(ranks)) == ()


def test_an_incomplete_capture_says_how_much_is_missing_and_when() -> None:
    found = only(failing(LOST))
    assert found.why == "incomplete-capture"
    assert found.sentence == (
        "Incomplete capture: 2,185 of 5,925 launches have no operation"
        " (from 8.669891 s to 9.000000 s)"
    )


@pytest.mark.parametrize(
    ("failed", "says"),
    [
        (
            FailedCheck(check=Check.UNSTAMPED, count=688, of=6892),
            "688 of 6,892 operations are",
        ),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=1, of=0), "nsys reported an error while"),
        (FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0), "nsys reported 2 errors while"),
    ],
)
def test_other_captures_are_incomplete_too(failed: FailedCheck, says: str) -> None:
    assert only(failing(failed)).sentence.startswith(f"Incomplete capture: {says}")


def test_of_several_ranks_the_incomplete_one_is_named() -> None:
    found = only(failing(LOST, "rank1"), renamed(handmade(), "rank0"))
    assert found.sentence.startswith("Incomplete capture in rank1: ")


def unrelated(**origin: Mapping[str, Path] | bool) -> tuple[Invalid, ...]:
    runs = [renamed(handmade(), name) for name in ("a b.sqlite", "c.sqlite")]
    return failures(Results(runs, origin=Origin(**origin)))  # type: ignore[arg-type]


def test_reports_without_a_common_collective_are_to_be_analysed_by_themselves() -> None:
    (found,) = unrelated(paths={"a b.sqlite": Path("runs/a b.sqlite")})
    assert found == Invalid(
        why="unrelated-reports",
        sentence="These do not look like ranks of one run",
        advice="analyse each by itself: nsysflow analyze 'runs/a b.sqlite'",
    )


def test_a_manifest_says_that_reports_are_ranks() -> None:
    assert unrelated(ranks=True) == ()


def test_a_common_collective_makes_ranks_whatever_their_names() -> None:
    ranks = [renamed(run, name) for run, name in zip(two_ranks(), "ab", strict=True)]
    assert failures(Results(ranks)) == ()


def test_two_real_reports_of_different_programs_are_no_ranks() -> None:
    assert failures(Results([analysed("nan_check-sync")])) == ()
    both = Results([analysed("nan_check-sync"), analysed("h2d-pinned")])
    assert [each.why for each in failures(both)] == ["unrelated-reports"]


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


def test_an_import_error_of_a_jax_program_says_how_to_switch_command_buffers_off() -> None:
    run = failing(FailedCheck(check=Check.IMPORT_ERRORS, count=1, of=0))
    jax = replace(run, notes=(Note(NoteKind.COMMAND_BUFFERS, "XLA runs its command buffers"),))
    assert only(run).advice == "record again with a newer nsys"
    assert "XLA_FLAGS=--xla_gpu_enable_command_buffer=" in only(jax).advice


def without_import(run: Handmade) -> Handmade:
    """The run, with backtraces, of which nsys could not import all."""
    backtraces = pl.DataFrame([(1, 2, 3)], schema=BACKTRACES, orient="row")
    text = "Cannot find string for an exterior index"
    diagnostics = pl.DataFrame({"text": [text]})
    return replace(run, trace=replace(run.trace, backtraces=backtraces, diagnostics=diagnostics))


def test_after_an_import_error_python_stacks_are_the_first_to_leave_out() -> None:
    found = only(without_import(failing(FailedCheck(check=Check.IMPORT_ERRORS, count=2, of=0))))
    assert "2 errors while importing" in found.sentence
    assert "nsysflow profile --backtrace none --sample-python 0" in found.advice


def test_kernels_that_nsys_could_not_import_are_not_blamed_on_its_age() -> None:
    found = only(without_import(failing(BLIND)))
    assert found.sentence == (
        "No kernel in this report: nsys reported an error while importing the recording"
    )
    assert "nsysflow profile --backtrace none --sample-python 0" in found.advice
