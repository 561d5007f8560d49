import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest

from nsysflow.analysis.findings.finding import Ends, Finding
from nsysflow.analysis.findings.saving import PlainEstimate
from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.replay.changes import CallKey, Changes, Removal
from nsysflow.report.explain.finding import command_lines, gaps_behind, reckoned, rows_behind
from nsysflow.report.findings import saving_of, suggestions
from nsysflow.report.layout import Block
from nsysflow.report.results import Origin
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    finding,
    found_of,
    frame,
    handmade,
    stepped,
    valued,
    with_findings,
)

IN_TURN: Final = "per step, each after those above"
ESTIMATE: Final = PlainEstimate(low_ns=20 * MS, high_ns=30 * MS, calibrated=False)
LINE: Final = "x.py:1 in f"


def test_without_steps_no_number_of_them_is_said_and_without_findings_nothing() -> None:
    found = suggestions(with_findings(valued(steps=1), steps=2, of_steps=False), 9)
    assert (found.rows[0].steps, found.caption) == ("", "of the whole window")
    none = suggestions(with_findings(), 3)
    assert (none.rows, none.more) == ((), "")


@pytest.mark.parametrize(("have", "said"), [(18, "in 18 of 20 steps"), (19, ""), (25, "")])
def test_it_is_said_how_many_steps_have_a_finding_unless_nearly_all_do(
    have: int, said: str
) -> None:
    (row,) = suggestions(with_findings(valued(steps=have), steps=20), 1).rows
    assert row.steps == said


def test_a_change_that_a_finding_above_wants_too_is_said_to_be_the_same() -> None:
    rows = [valued(title=title) for title in "abc"]
    rows[1] = replace(rows[1], finding=replace(rows[1].finding, change=("another",)))
    changes = [row.change for row in suggestions(with_findings(*rows), 3).rows]
    (first, *_) = rows[0].finding.change
    assert changes == [first, "another", f"as for 1: {first}"]


def test_the_number_of_steps_is_not_said_twice() -> None:
    one = valued(steps=18, title="the clock falls in 18 of 20 steps")
    (row,) = suggestions(with_findings(one, steps=20), 1).rows
    assert row.steps == ""


@pytest.mark.parametrize(
    ("estimate", "undisturbed_ms", "later_ms", "said"),
    [
        (None, 50, None, ""),
        (None, 25, None, "; of 25.0 ms without the profiler (recorded 50.0 ms)"),
        (None, 25, 24, "; of 25.0 ms without the profiler (recorded 50.0 ms)"),
        (None, 25, 8, "; of 25.0 ms by replay (recorded 50.0 ms, steps not recorded 8.00 ms)"),
        (ESTIMATE, 25, None, "; of about 25.0 ms without the profiler"),
    ],
)
def test_the_caption_says_of_which_step_savings_are(
    estimate: PlainEstimate | None, undisturbed_ms: int, later_ms: int | None, said: str
) -> None:
    found = replace(found_of(valued()), undisturbed_step_ns=undisturbed_ms * MS)
    run = stepped(replace(found, plain_estimate=estimate))
    origin = Origin(later_step_ns=later_ms and later_ms * MS)
    assert suggestions(Results([run], origin=origin), 1).caption == f"{IN_TURN}{said}"


@pytest.mark.parametrize(
    ("high_ms", "said"), [(0, "all together"), (0.4, "all together"), (20, "replayed together")]
)
def test_what_no_replay_knows_is_not_in_what_all_save_together(high_ms: float, said: str) -> None:
    loads_code = valued(round(high_ms * MS), changes=None)
    both = found_of(valued(), valued(), loads_code, together_ns=10 * MS)
    assert suggestions(Results([stepped(both)]), 1).caption == (
        f"{IN_TURN}; {said} 50.0 ms → 40.0 ms"
    )


def ends(low_ms: float, high_ms: float) -> Ends:
    """The least and the most that is saved of a step of 50 ms."""
    low_ns, high_ns = (round(ms * MS) for ms in (low_ms, high_ms))
    return Ends(low_ns=low_ns, high_ns=high_ns, low_pct=2 * low_ms, high_pct=2 * high_ms)


@pytest.mark.parametrize(
    ("of", "said"),
    [
        # what depends much on what recording costs is rough
        ({"plain": None}, "save 5.00 ms (10 %)"),
        ({"plain": ends(4, 5)}, "save 5.00 ms (10 %)"),
        ({"plain": ends(1, 6)}, "save about 5.00 ms (10 %)"),
        # two ends are a range
        ({"low_ns": MS}, "save 1.00 to 5.00 ms (2.0 to 10 %)"),
        ({"low_ns": 0}, "save up to 5.00 ms (10 %)"),
        ({"low_ns": 5 * MS}, "save 5.00 ms (10 %)"),
        # no plain step may pass them
        ({"low_ns": MS, "plain": ends(0.5, 7)}, "save 500 us to 7.00 ms (1.0 to 14 %)"),
        ({"exact": False, "plain": ends(0, 7)}, "save up to 7.00 ms (14 %)"),
        ({"exact": False}, "save up to 5.00 ms (10 %)"),
        ({"saves_more": True, "plain": ends(1, 6)}, "save at least 5.00 ms (10 %)"),
    ],
)
def test_a_saving_is_a_figure_or_a_range(of: dict[str, Any], said: str) -> None:
    sure = Changes() if "low_ns" in of else None
    fields = {name: of[name] for name in ("exact", "saves_more") if name in of}
    found = valued(5 * MS, sure=sure, **fields)
    assert saving_of(replace(found, **{name: of[name] for name in of.keys() - fields})) == said


def explained(run: Handmade, *typed: str) -> str:
    origin = Origin(typed=tuple(map(Path, typed)))
    return suggestions(Results([run], origin=origin), 1).more.partition("in full: ")[2]


def test_the_command_is_quoted_for_a_shell_and_chooses_what_is_judged() -> None:
    run = stepped(found_of(valued()))
    assert explained(run, "a b/r.sqlite") == "nsysflow explain 1 'a b/r.sqlite'"
    assert explained(run, "r0", "r1") == "nsysflow explain 1 r0 r1"
    parts = (StepPart(2), StepPart(7, 8, out=True))
    options = Options(device=1, steps=parts, step="my step", skip=3, whole=True)
    assert explained(replace(run, options=options), "r") == (
        "nsysflow explain 1 r --device 1 --steps 2: --steps '!7' --step 'my step' --skip 3 --whole"
    )


@pytest.mark.parametrize(
    ("left_ns", "says"),
    [
        pytest.param(1_710, "nothing more (alone 6.00 ms)", id="all of it"),
        pytest.param(2 * MS, "save 2.00 ms (alone 6.00 ms)", id="two thirds of it"),
        pytest.param(3 * MS, "save 3.00 ms (6.0 %)", id="half of it"),
    ],
)
def test_a_finding_that_those_above_cover_says_what_it_saves_alone(left_ns: int, says: str) -> None:
    covered = replace(valued(left_ns), alone_ns=6 * MS)
    (row,) = suggestions(with_findings(covered), 1).rows
    assert row.saving == says


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(removed=(Removal(kind="sync", at="step"),)), "without this wait"),
        (Changes(removed_calls=(CallKey(1, 2, 3),)), "without this wait"),
        (Changes(removed=(Removal(kind="alloc"),)), "without allocating and freeing"),
        (Changes(async_copies=True), "with copies that do not block the host"),
        (
            Changes(graphs=("step",)),
            "with all that the phase step launches between two waits as one CUDA graph",
        ),
        (Changes(scaled=(("gemm", 0.5),)), "with the kernel gemm at 50 % of the time"),
        (Changes(scaled=(("a", 0.0), ("b", 0.0))), "with 2 kernels taking no time"),
        (Changes(scaled=(("a", 0.3), ("b", 0.7), ("c", 0.5))),
         "with 3 kernels at 30 % to 70 % of the time"),
        (Changes(faster_host=(("data", 0.0),)), "with the host's code in data taking no time"),
        (Changes(no_profiler=True), "without the profiler's own work"),
        (Changes(no_gil=True), "with no wait for Python's lock"),
        (Changes(overlapped=True),
         "with the host preparing each step while the GPU runs the one before"),
        (Changes(removed=(Removal(kind="sync"), Removal(kind="copy"))),
         "without this wait, and with copies that do not block the host"),
    ],
)  # fmt: skip
def test_a_replay_says_what_is_different_in_it(changes: Changes, said: str) -> None:
    assert reckoned(finding(changes=changes)) == f"replayed: the steps {said}"


def test_a_long_command_has_a_line_for_each_option_and_is_the_same_to_a_shell() -> None:
    options = ["--async-copies", "--scale", "void f<int>()=0.5", "--graph", "a" * 100]
    lines = [*command_lines(["nsysflow", "whatif", "r"], options)]
    assert lines[1:3] == ["    --async-copies \\", "    --scale 'void f<int>()=0.5' \\"]
    typed = "\n".join(["printf '%s\\n' \\", *lines])
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["nsysflow", "whatif", "r", *options]


def gaps(one: Finding, *slices: pl.DataFrame, causes: tuple[str, ...] = ("sync",)) -> list[Block]:
    return [*gaps_behind({1: (one, causes)}, slices).values()]


def gap(us: int, **fields: Any) -> dict[str, Any]:
    at = {"start_ns": 0, "duration_ns": 1000 * us, "cause": "sync", "phase": "step", "device": 0}
    return at | {"prev_op": "a", "next_op": "b", "source": LINE} | fields


def lengths(*blocks: Block) -> list[str]:
    return [row[1] for block in blocks for row in block.rows]


def test_gaps_of_all_slices_come_largest_first_and_the_rest_is_counted() -> None:
    slices = (frame("gaps", *map(gap, some)) for some in ((1, 5, 3), (2, 6, 4)))
    (block,) = gaps(finding(source=LINE), *slices)
    assert lengths(block) == ["6.00 us", "5.00 us", "4.00 us", "3.00 us", "2.00 us"]
    assert block.rest == "1 more: --table gaps"


@pytest.mark.parametrize(
    ("fields", "causes", "shown"),
    [
        # of its line, cause and device
        ({"source": LINE, "device": 0}, ("sync",), ["5.00 us", "1.00 us"]),
        # without a line, of its phase and what is nested in it
        ({"phase": "step/data"}, ("sync",), ["5.00 us"]),
        ({"phase": "step"}, ("host",), ["2.00 us"]),
        ({"phase": "none"}, ("sync",), []),
        ({}, (), []),  # of a busy GPU
    ],
)
def test_gaps_of_another_place_or_cause_are_not_behind_it(
    fields: dict[str, Any], causes: tuple[str, ...], shown: list[str]
) -> None:
    some = (
        *(gap(1), gap(2, cause="host"), gap(3, source="x.py:2 in f", phase="step_2")),
        *(gap(4, device=1, phase="step_2"), gap(5, phase="step/data")),
        gap(6, cause="host", phase="step_2"),
    )
    found = gaps(finding(**fields), frame("gaps", *some), causes=causes)
    assert lengths(*found) == shown


STEP: Final = {"phase": "step", "source": LINE}
TABLES: Final = handmade(
    syncs=[
        STEP | {"api": "cudaStreamSynchronize", "induced_idle_ns": 1000},
        STEP | {"api": "cudaMemcpyAsync", "induced_idle_ns": 2000},
        STEP | {"api": "cudaMemcpyAsync", "induced_idle_ns": 3000, "source": "x.py:2 in f"},
        STEP | {"api": "cudaFree", "induced_idle_ns": 0},  # costs nothing
    ],
    host_stacks=[
        {"phase": "step/data", "idle_ns": 2000, "cause": "host"},
        {"phase": None, "idle_ns": 1000, "cause": "host"},
    ],
    gap_summary=[
        {"phase": "step/data", "total_ns": 1000, "cause": "host"},
        {"phase": "step", "total_ns": 2000, "cause": "sync"},
    ],
    kernels=[
        {"name": "sgemm<1>", "short_name": "sgemm", "class": "matmul", "total_ns": 1000},
        {"name": "softmax<2>", "short_name": "softmax", "class": "softmax", "total_ns": 3000},
        {"name": "hgemm<3>", "short_name": "hgemm", "class": "matmul", "total_ns": 2000},
    ],
    larger_batch=[
        {"times": 2.1, "peak_bytes": 4},
        {"times": 2.5, "peak_bytes": 5},
    ],
)
SCALED: Final = Changes(scaled=(("sgemm", 0.5),))


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        # all calls of a line; without a line only its own call
        ({"source": LINE, "culprit": "cudaMemcpyAsync"},
         ["cudaMemcpyAsync", "cudaStreamSynchronize"]),
        ({"phase": "step", "culprit": "cudaStreamSynchronize"}, ["cudaStreamSynchronize"]),
        ({"table": "gap_summary", "phase": "step"}, ["step/data"]),  # of its cause
        # the kernels that the change scales, else those of its kernel or class
        ({"table": "kernels", "changes": SCALED, "culprit": "matmul"}, ["sgemm"]),
        ({"table": "kernels", "culprit": "matmul"}, ["hgemm", "sgemm"]),
        ({"table": "kernels", "culprit": "softmax"}, ["softmax"]),
        ({"table": "kernels"}, ["softmax", "hgemm", "sgemm"]),
    ],
)  # fmt: skip
def test_the_largest_rows_are_behind_it(fields: dict[str, Any], shown: list[str]) -> None:
    blocks = [*rows_behind(finding(**fields), TABLES, ("host",), 200)]
    assert [row[0] for block in blocks for row in block.rows] == shown


def test_a_table_without_times_shows_the_largest_sizes() -> None:
    (block,) = rows_behind(finding(table="larger_batch"), TABLES, (), 200)
    assert [row[-1] for row in block.rows] == ["2.50", "2.10"]


@pytest.mark.parametrize(("phase", "idle"), [("step", "2.00 us"), ("", "1.00 us")])
def test_samples_behind_it_are_of_its_phase_or_outside_of_all(phase: str, idle: str) -> None:
    of_samples = finding(table="host_stacks", phase=phase, source=LINE)
    ((row,),) = (block.rows for block in rows_behind(of_samples, TABLES, (), 200))
    assert idle in row
