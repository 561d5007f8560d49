"""Source lines: from nsys's backtraces to tables and page."""

from pathlib import Path

import polars as pl

import nsysflow
from nsysflow.analysis.load.pack import pack
from nsysflow.analysis.timeline.source_lines import stack_sources
from nsysflow.report.blocks import block_of
from nsysflow.report.fields import Limits
from nsysflow.report.results import Results
from tests.analyses import analysed
from tests.analysis.load.nsys_export.test_sampled import BACKTRACES, backtrace
from tests.exports import write_export
from tests.oracle.model import Backtrace, Call, Frame, PlainTrace, to_trace
from tests.reports import DATA

TORCH = "/opt/lib/python3.12/site-packages/torch/_tensor.py"
FRAMES = {"stack": pl.UInt32, "depth": pl.UInt32, "file": pl.String, "line": pl.Int64}


def sources_of(*stacks: list[tuple[str, int, str]]) -> list[str | None]:
    """The source of each stack of (file, line, function), innermost first."""
    rows = [
        (number, depth, *frame)
        for number, frames in enumerate(stacks)
        for depth, frame in enumerate(frames)
    ]
    frames = pl.DataFrame(rows, schema=FRAMES | {"function": pl.String}, orient="row")
    found = dict(stack_sources(frames).rows())
    return [found.get(number) for number in range(len(stacks))]


def test_the_source_is_the_innermost_frame_of_the_program() -> None:
    below = [(TORCH, 9, "item"), ("/home/me/train.py", 42, "step"), ("/home/me/main.py", 7, "run")]
    assert sources_of(below) == ["train.py:42 in step"]


def test_a_stack_with_only_libraries_has_no_source() -> None:
    assert sources_of([(TORCH, 9, "item"), ("<frozen runpy>", 88, "_run_code")]) == [None]


def test_code_typed_in_is_the_programs_own() -> None:
    assert sources_of([(TORCH, 9, "item"), ("<string>", 1, "<module>")]) == [
        "<string>:1 in <module>"
    ]


def test_code_generated_by_a_library_is_not_the_programs_own() -> None:
    inductor = "/opt/lib/python3.12/site-packages/torch/_inductor/runtime/triton_heuristics.py"
    launch = [("<string>", 5, "launcher"), (inductor, 1495, "run")]
    assert sources_of([*launch, ("/home/me/train.py", 42, "step")]) == ["train.py:42 in step"]
    typed = [("<string>", 3, "step"), ("<string>", 9, "<module>")]
    assert sources_of([*launch, *typed], typed) == ["<string>:3 in step"] * 2


def test_two_files_with_the_same_name_are_distinguished() -> None:
    stacks = [[("/p/model/utils.py", 3, "f")], [("/p/data/utils.py", 3, "f")]]
    assert sources_of(*stacks) == ["model/utils.py:3 in f", "data/utils.py:3 in f"]


def _two_calls(path: Path) -> Path:
    """A wait, then a launch, in files with the same name; the launch has two rows, one sampled."""
    wait, launch = {"start": 100, "end": 900_000}, {"start": 920_000, "end": 930_000}
    return write_export(
        path,
        kernels=[
            {"start": 50, "end": 800_000, "correlationId": 1},
            {"start": 1_200_000, "end": 1_300_000, "correlationId": 3},
        ],
        calls=[
            {"start": 10, "end": 40, "correlationId": 1},
            {**wait, "correlationId": 2, "nameId": "cudaStreamSynchronize_v3020"},
            {**launch, "correlationId": 3},
            {"start": 921_000, "end": 929_000, "correlationId": 3, "nameId": "cuLaunchKernel"},
        ],
        nvtx=[
            BACKTRACES,
            backtrace(100, (600, 610, 7), (601, 611, 42)),
            backtrace(921_000, (600, 610, 8), (602, 612, 5)),
        ],
        strings={
            600: "item",
            601: "step",
            602: "&lt;lambda&gt;",
            610: TORCH,
            611: "/home/secret/model/utils.py",
            612: "/home/secret/data/utils.py",
        },
    )


def test_a_wait_is_blamed_on_its_line_and_a_launch_without_one_on_the_drivers_call(
    tmp_path: Path,
) -> None:
    analysis = nsysflow.analyze(nsysflow.load(_two_calls(tmp_path / "r.sqlite")))
    assert analysis.syncs["source"].to_list() == ["model/utils.py:42 in step"]
    summary = dict(analysis.gap_summary.select("cause", "source").rows())
    assert summary["sync"] == "model/utils.py:42 in step"
    assert summary["dependency"] == "data/utils.py:5 in <lambda>"
    (gap,) = analysis.gaps.to_dicts()
    assert (gap["cause"], gap["source"]) == ("dependency", "data/utils.py:5 in <lambda>")


def test_a_packed_copy_has_the_same_sources_and_not_the_folders(tmp_path: Path) -> None:
    report, packed = _two_calls(tmp_path / "r.sqlite"), tmp_path / "packed.sqlite"
    pack(report, packed)
    before, after = (nsysflow.analyze(nsysflow.load(path)) for path in (report, packed))
    for table in ("gaps", "gap_summary", "syncs"):
        found = getattr(before, table)["source"].to_list()
        assert found == getattr(after, table)["source"].to_list()
        assert any(found)
    assert b"secret" not in packed.read_bytes()


def test_a_report_without_backtraces_has_no_source_and_no_column_of_them() -> None:
    analysis = analysed("h200-train")
    for table in ("gap_summary", "syncs"):
        assert getattr(analysis, table)["source"].null_count() == getattr(analysis, table).height
    run = Results([analysis])
    for table in ("gap_summary", "syncs", "gaps"):
        block = block_of(table)(run, Limits(rows=5))
        assert "line" not in [column.head for column in block.columns]


def test_the_page_names_the_lines_of_a_real_run() -> None:
    run = Results([analysed("h200-backtrace")])
    for table in ("gap_summary", "syncs", "gaps"):
        block = block_of(table)(run, Limits(rows=5))
        (line,) = [n for n, column in enumerate(block.columns) if column.head == "line"]
        assert any("train.py:" in row[line] for row in block.rows)
    place = (pl.col("cause") == "blocking_copy") & (pl.col("phase") == "step_sync/metrics")
    assert run.table("gap_summary").filter(place)["source"].to_list() == ["train.py:31 in train"]


def test_no_path_of_a_real_run_is_absolute() -> None:
    sources = analysed("h200-backtrace").timeline.events.calls["source"].drop_nulls().unique()
    assert all(source.startswith("train.py:") for source in sources.cast(pl.String))


def test_every_sampled_call_of_a_real_run_has_its_line() -> None:
    trace = nsysflow.load(DATA / "h200-backtrace.sqlite.xz")
    calls = nsysflow.analyze(trace).timeline.events.calls
    starts = trace.backtraces.select("start_ns").join(calls, on="start_ns")
    assert starts.height == trace.backtraces.height
    assert starts["source"].null_count() == 0


def test_a_call_inside_a_sampled_call_has_its_line() -> None:
    def made(start_ns: int, end_ns: int) -> Call:
        return Call(start_ns, end_ns, 1 << 24, (1 << 24) | 1, None, "cudaMalloc")

    def sampled(start_ns: int, line: int) -> Backtrace:
        return Backtrace(start_ns, (1 << 24) | 1, (Frame("/home/me/a.py", line, "f"),))

    trace = PlainTrace(
        #  0-----------------100     120--130
        #     10-20 30-40 50-100
        calls=(made(0, 100), made(10, 20), made(30, 40), made(50, 100), made(120, 130)),
        backtraces=(sampled(0, 1), sampled(10, 2)),
    )
    rows = nsysflow.analyze(to_trace(trace)).syncs.sort("start_ns")
    assert rows["source"].to_list() == [*("a.py:1 in f", "a.py:2 in f"), *["a.py:1 in f"] * 2, None]
