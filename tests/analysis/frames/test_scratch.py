"""Frames in files when a report is too large for memory."""

import gc
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import nsysflow
from nsysflow.analysis.frames import scratch as module
from nsysflow.analysis.frames.scratch import Scratch, in_files, in_slices, mapped, own_bytes
from nsysflow.base.errors import OutputError
from tests.analyses import EXAMPLES, OF_REPORT, analysed, loaded
from tests.analysis.idle.test_idle import CAUSES
from tests.disks import full_disk
from tests.oracle.model import PlainTrace, side_by_side, to_trace
from tests.oracle.strategies import traces
from tests.tiny import trace_of

NUMBERS = pl.int_range(1003, eager=True)
WORDS = [f"word {number % 7}" for number in range(1003)]
COLUMNS = {
    "numbers": NUMBERS,
    "small numbers": (NUMBERS % 200).cast(pl.UInt8),
    "fractions": NUMBERS / 3,
    "flags": NUMBERS % 3 == 0,
    "numbers with nulls": NUMBERS.set(NUMBERS % 5 == 0, None),
    "flags with nulls": (NUMBERS % 3 == 0).set(NUMBERS % 5 == 0, None),
    "categories": pl.Series(WORDS, dtype=pl.Categorical),
    "words of an enum": pl.Series(WORDS, dtype=pl.Enum(sorted(set(WORDS)))),
    "text": pl.Series(WORDS),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_mapped_column_may_be_cut(tmp_path: Path, name: str) -> None:
    for first, length in ((0, 1003), (3, 1000), (5, 700), (8, 8), (9, 0)):
        column = COLUMNS[name].alias(name).slice(first, length)
        found = mapped(column, tmp_path)
        assert found.equals(column, check_dtypes=True, check_names=True, null_equal=True), first
        assert found.slice(3, 20).equals(column.slice(3, 20)), first


def test_pieces_become_one_column(tmp_path: Path) -> None:
    pieces = pl.concat([NUMBERS.slice(1, 9), NUMBERS.slice(77, 55)], rechunk=False)
    assert mapped(pieces, tmp_path).to_list() == pieces.to_list()


@pytest.mark.parametrize("name", COLUMNS)
def test_what_lies_in_files_is_not_written_again(tmp_path: Path, name: str) -> None:
    scratch = Scratch(tmp_path, least_bytes=1)
    found = scratch.kept(COLUMNS[name])
    held = len(module._held)
    for part in (found, found.slice(10, 50), pl.concat([found, found.tail(1)], rechunk=False)):
        assert scratch.kept(part).equals(part)
        assert len(module._held) == held


def test_a_column_with_little_in_memory_stays_as_it_is(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, least_bytes=1000)
    whole = pl.concat([scratch.kept(NUMBERS), NUMBERS.head(100)], rechunk=False)
    assert scratch.kept(whole) is whole
    longer = pl.concat([whole, NUMBERS.head(100)], rechunk=False)
    held = len(module._held)
    written = scratch.kept(longer)
    assert written.equals(longer)
    assert len(module._held) == held + 1


def test_columns_stay_in_memory_while_there_is_room(tmp_path: Path) -> None:
    held = len(module._held)
    roomy = Scratch(tmp_path, room_bytes=own_bytes() + 10**9, least_bytes=1)
    assert roomy.kept(NUMBERS) is NUMBERS
    assert len(module._held) == held
    full = Scratch(tmp_path, room_bytes=own_bytes() // 2, least_bytes=1)
    found = full.kept(NUMBERS)
    assert found.equals(NUMBERS)
    assert len(module._held) == held + 1


def test_only_memory_without_a_file_is_the_process_s_own(tmp_path: Path) -> None:
    before = own_bytes()
    taken = bytearray(b"x") * 50_000_000
    assert own_bytes() - before > 0.9 * len(taken)
    numbers = mapped(pl.int_range(10_000_000, eager=True), tmp_path)
    before = own_bytes()
    assert numbers.sum() > 0
    assert own_bytes() - before < 0.5 * numbers.estimated_size()


def test_a_column_that_nobody_holds_takes_no_disk(tmp_path: Path) -> None:
    gc.collect()
    before = len(module._held)
    found = mapped(NUMBERS, tmp_path)
    part = found.slice(5, 7)
    del found
    assert len(module._held) == before + 1
    assert part.to_list() == [*range(5, 12)]
    del part
    gc.collect()
    assert len(module._held) == before


def test_no_file_is_seen_even_if_the_process_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, polars as pl\n"
        "from pathlib import Path\n"
        "from nsysflow.analysis.frames.scratch import mapped\n"
        "column = mapped(pl.int_range(100_000, eager=True), Path(sys.argv[1]))\n"
        "assert column.sum() == 4_999_950_000\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not [*tmp_path.iterdir()]


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as disk, pytest.raises(OutputError) as error:
        Scratch(disk, least_bytes=0).kept(pl.int_range(200_000, eager=True))
    assert "No space left on device" in str(error.value)
    assert "export TMPDIR=FOLDER" in str(error.value)


def test_slices_are_of_as_many_rows_and_an_empty_frame_is_one(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, slice_rows=400)
    frame = NUMBERS.to_frame()
    assert [len(rows) for rows in in_slices(frame, scratch)] == [400, 400, 203]
    assert [len(rows) for rows in in_slices(frame.clear(), scratch)] == [0]
    assert [len(rows) for rows in in_slices(frame, None)] == [1003]


def test_frames_below_each_other_become_one(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, least_bytes=0)
    frame = pl.DataFrame({name.replace(" ", "_"): column for name, column in COLUMNS.items()})
    assert scratch.joined(frame.iter_slices(100)).equals(frame)


def test_without_scratch_a_value_stays_where_it_is() -> None:
    assert in_files(NUMBERS, None) is NUMBERS


def assert_same(trace: nsysflow.Trace, whole: nsysflow.Analysis, scratch: Scratch) -> None:
    sliced = nsysflow.analyze(replace(trace, scratch=scratch), whole.options)
    for name in OF_REPORT:
        assert_frame_equal(getattr(sliced, name), getattr(whole, name), check_exact=True)


SLICED = ("h200-graph-level", "h200-ddp-rank0", pytest.param("h200-train", marks=pytest.mark.long))
"""Reports that differ in what is worked on in slices. nan_check-sync's files are compared
elsewhere."""


@pytest.mark.parametrize("name", SLICED)
def test_a_report_has_the_same_tables(name: str, fast_disk: Path) -> None:
    whole = analysed(name)
    slice_rows = 1 + len(whole.timeline.bare_gaps) // 7
    assert_same(loaded(name), whole, Scratch(fast_disk, least_bytes=0, slice_rows=slice_rows))


@settings(max_examples=EXAMPLES // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(traces(), min_size=2, max_size=4).map(side_by_side), st.integers(2, 5))
def test_random_traces_are_equal(fast_disk: Path, plain: PlainTrace, parts: int) -> None:
    trace, slice_rows = to_trace(plain), 1 + len(plain.ops) // parts
    scratch = Scratch(fast_disk, least_bytes=0, slice_rows=slice_rows)
    assert_same(trace, nsysflow.analyze(trace), scratch)


CARRIED = (
    "a new stall drops the rest of the one before",
    "two waits that several gaps share",
    "a wait long before the first gap",
    "a wait in a gap behind another process's operation",
)
"""Pictures of what step 3 hands on from one slice of the gaps to the next."""


@pytest.mark.parametrize("name", CARRIED)
def test_gaps_in_slices_have_the_causes_of_the_whole(name: str, fast_disk: Path) -> None:
    trace = trace_of(*CAUSES[name])
    scratch = Scratch(fast_disk, least_bytes=0, slice_rows=1)
    sliced, whole = (nsysflow.analyze(each) for each in (replace(trace, scratch=scratch), trace))
    assert_frame_equal(sliced.gap_summary, whole.gap_summary)
    assert_frame_equal(sliced.syncs, whole.syncs)


class Named(NamedTuple):
    frame: pl.DataFrame
    text: str


def test_a_named_tuple_stays_one(tmp_path: Path) -> None:
    value = Named(pl.DataFrame({"a": range(100)}), "b")
    kept = Scratch(tmp_path, least_bytes=1).kept(value)
    assert isinstance(kept, Named)
    assert (kept.frame.equals(value.frame), kept.text) == (True, "b")
