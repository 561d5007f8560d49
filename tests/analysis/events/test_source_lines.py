"""Source lines: from nsys's backtraces to tables and page."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.events.source_lines import recorded_files, stack_sources
from nsysflow.analysis.load.pack import pack
from nsysflow.report.blocks import block_of
from nsysflow.report.fields import Limits
from nsysflow.report.results import Results
from tests.analyses import analysed
from tests.analysis.load.test_sampled import BACKTRACES, backtrace
from tests.exports import write_export
from tests.oracle.model import Backtrace, Call, Frame, PlainTrace, to_trace
from tests.oracle.report import Report
from tests.reports import DATA
from tests.tiny import MAIN, WORKER, call, kernel, plain_of

TORCH = "/opt/lib/python3.12/site-packages/torch/_tensor.py"
FRAMES = {"stack": pl.UInt32, "depth": pl.UInt32, "file": pl.String, "line": pl.Int64}


def lines_of(
    *stacks: list[tuple[str, int, str]], own: tuple[str, ...] = ()
) -> list[tuple[str | None, str | None]]:
    """The source of each stack of (file, line, function), innermost first, and its via."""
    rows = [
        (number, depth, *frame)
        for number, frames in enumerate(stacks)
        for depth, frame in enumerate(frames)
    ]
    frames = pl.DataFrame(rows, schema=FRAMES | {"function": pl.String}, orient="row")
    found = {stack: (source, via) for stack, source, via in stack_sources(frames, own).rows()}
    return [found.get(number, (None, None)) for number in range(len(stacks))]


def sources_of(*stacks: list[tuple[str, int, str]]) -> list[str | None]:
    """The source of each stack."""
    return [source for source, _ in lines_of(*stacks)]


def test_the_source_is_the_innermost_frame_of_the_program() -> None:
    below = [(TORCH, 9, "item"), ("/home/me/train.py", 42, "step"), ("/home/me/main.py", 7, "run")]
    assert sources_of(below) == ["train.py:42 in step"]


def test_the_name_in_a_line_leads_to_the_whole_path_of_the_file() -> None:
    files = ["/home/me/a/train.py", "/home/me/b/train.py", TORCH, "/usr/lib/python3.12/json/a.py"]
    rows = [(number, 0, file, 1, "f") for number, file in enumerate(files)]
    frames = pl.DataFrame(rows, schema=FRAMES | {"function": pl.String}, orient="row")
    assert recorded_files(frames) == {"a/train.py": files[0], "b/train.py": files[1]}


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


def test_the_init_of_a_dataclass_is_not_a_line_that_anybody_wrote() -> None:
    generated = ("<string>", 115, "__init__")
    assert lines_of([generated, SCRIPT]) == [("main.py:9 in <module>", None)]


def test_two_files_with_the_same_name_are_distinguished() -> None:
    stacks = [[("/p/model/utils.py", 3, "f")], [("/p/data/utils.py", 3, "f")]]
    assert sources_of(*stacks) == ["model/utils.py:3 in f", "data/utils.py:3 in f"]


PACKAGES = "/opt/lib/python3.12/site-packages"
LOOP = (f"{PACKAGES}/transformers/trainer.py", 2541, "_inner_training_loop")
TRAIN = (f"{PACKAGES}/transformers/trainer.py", 1520, "train")
SCRIPT = ("/home/me/main.py", 9, "<module>")


def test_via_is_the_innermost_frame_of_a_framework_that_the_program_called() -> None:
    called = [(TORCH, 9, "item"), LOOP, TRAIN, SCRIPT]
    via = "transformers/trainer.py:2541 in _inner_training_loop"
    assert lines_of(called) == [("main.py:9 in <module>", via)]


def test_a_callback_of_the_program_inside_a_framework_has_no_via() -> None:
    callback = [(TORCH, 9, "item"), ("/home/me/log.py", 4, "on_log"), LOOP, SCRIPT]
    assert lines_of(callback) == [("log.py:4 in on_log", None)]


@pytest.mark.parametrize("package", ["torch", "triton", "jax", "nvtx", "nsysflow/runtime"])
def test_the_lines_of_a_package_that_every_program_runs_through_are_no_via(package: str) -> None:
    stack = [(f"{PACKAGES}/{package}/a.py", 1, "f"), SCRIPT]
    assert lines_of(stack) == [("main.py:9 in <module>", None)]


def test_the_standard_library_and_generated_code_are_no_via() -> None:
    library = ("/opt/lib/python3.12/threading.py", 1, "run")
    generated = [("<frozen runpy>", 1, "f"), ("/var/torchinductor_me/a.py", 2, "call")]
    assert lines_of([library, *generated, SCRIPT]) == [("main.py:9 in <module>", None)]


def test_a_thread_that_runs_only_a_framework_has_a_via_and_no_source() -> None:
    via = "transformers/trainer.py:2541 in _inner_training_loop"
    assert lines_of([(TORCH, 9, "item"), LOOP, TRAIN]) == [(None, via)]


@pytest.mark.parametrize("own", ["transformers", PACKAGES, f"{PACKAGES}/transformers/trainer.py"])
def test_a_package_that_was_named_is_the_programs_own(own: str) -> None:
    accelerate = (f"{PACKAGES}/accelerate/optimizer.py", 170, "step")
    stack = [accelerate, LOOP, TRAIN, SCRIPT]
    outer = "transformers/trainer.py:2541 in _inner_training_loop"
    inner = "accelerate/optimizer.py:170 in step"
    assert lines_of(stack, own=(own,)) == [(inner, None) if own == PACKAGES else (outer, inner)]


COPIED: Final = (call(0, 30_000, "cudaMemcpy"), call(31_000, 31_500, "cudaStreamSynchronize"))
AT_LINE: Final = (Frame(function="step", file="/home/me/train.py", line=42),)


def lines_of_calls(calls: tuple[Call, ...], *seen_ns: int) -> list[str | None]:
    """The source of each call, where backtraces were recorded at these times."""
    seen = tuple(Backtrace(start_ns=at, thread=MAIN, frames=AT_LINE) for at in seen_ns)
    model = plain_of(*calls, kernel(0, 1, 0))
    trace = to_trace(replace(model, backtraces=seen))
    sources = nsysflow.analyze(trace).timeline.events.calls["source"]
    found = sources.cast(pl.String).to_list()
    oracle = Report(replace(model, backtraces=seen)).sources
    assert found == [oracle.of(at)[0] for at in range(len(found))]
    return found


@pytest.mark.parametrize("seen_ns", [0, 31_000])
def test_a_blocking_copy_and_the_wait_behind_it_have_one_line(seen_ns: int) -> None:
    assert lines_of_calls(COPIED, seen_ns) == ["train.py:42 in step"] * 2


@pytest.mark.parametrize(
    "between", [call(30_500, 30_600, "cudaEventSynchronize"), call(30_500, 30_600, "cudaMalloc")]
)
def test_a_wait_behind_another_call_has_no_line_of_the_copy_before(between: Call) -> None:
    assert lines_of_calls((COPIED[0], between, COPIED[1]), 0)[2] is None


def test_a_wait_later_or_of_another_thread_has_no_line_of_the_copy() -> None:
    later = call(80_001, 81_000, "cudaStreamSynchronize")
    assert lines_of_calls((COPIED[0], later), 0) == ["train.py:42 in step", None]
    other = replace(COPIED[1], thread=WORKER)
    assert lines_of_calls((COPIED[0], other), 0) == ["train.py:42 in step", None]


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
