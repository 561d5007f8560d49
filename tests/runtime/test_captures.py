"""A capture records exactly the window, and describes it."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import nsysflow
from nsysflow.analysis.trace import NoteKind
from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.captures import CudaProfilerCapture, synchronize
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR, RANK, RUN_FOLDER, SHAPES, STACKS
from tests.recording import Notes, nvtx_events, record_and_export, recorded
from tests.runtime.programs import LOOP, TRAINS, instances, run_torch

pytestmark = pytest.mark.xdist_group("torch")


def functions_recorded(trace: Path) -> bool:
    """Whether Python's functions are among the events."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return any(event.get("cat") == "python_function" for event in events)


@pytest.mark.slow
def test_torch_profiler_leaves_a_trace_of_the_active_steps_for_each_process(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:3"}
    done = run_torch(TRAINS, tmp_path, **asked)
    assert done.returncode == 0, done.stderr
    (status,) = take_statuses(tmp_path)
    (first,) = tmp_path.iterdir()
    assert first.name == "report.pt.trace.json.gz"
    held = json.loads(gzip.decompress(first.read_bytes()))
    assert held["nsysflow"] == {"capture": "1:2:3", "unprofiled_step_ns": status.unprofiled_step_ns}
    assert instances(first) == {"step": 3, "step/data": 3, "step/forward": 3}
    assert not functions_recorded(first)
    assert nsysflow.load(first).ops.is_empty()
    assert "torch" in status.versions
    before = first.read_bytes()
    assert run_torch(TRAINS, tmp_path, **asked).returncode == 0
    (other,) = take_statuses(tmp_path)
    second = tmp_path / f"report-{other.pid}.pt.trace.json.gz"
    assert {*tmp_path.iterdir()} == {first, second}
    assert first.read_bytes() == before


UNUSUAL = [
    *("für", "日本", "\U0001f600", 'a "quote"', "C:\\new\\u"),
    *("tab\there", "<U+FC>", "plain/x y"),
]
ENDS_INSIDE = f"""{TRAINS}
    for name in {UNUSUAL!a}:
        with region(name):
            torch.ones(2)
raise SystemExit(5)
"""


@pytest.mark.slow
def test_a_program_that_ends_inside_the_window_leaves_its_ranks_trace(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:30", RANK: "1", STACKS: "1", SHAPES: "1"}
    assert run_torch(ENDS_INSIDE, tmp_path, **asked).returncode == 5
    (status,) = take_statuses(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "rank1.pt.trace.json.gz"
    assert instances(path)["step"] == status.captured == 6
    assert status.window == "open"
    assert functions_recorded(path)
    text = gzip.decompress(path.read_bytes())
    assert b'"Input Dims"' in text
    assert b'"[memory]"' in text
    trace = nsysflow.load(path)
    assert {*trace.ranges["name"].cast(str)} == {"step", "data", "forward", *UNUSUAL}
    assert not any(note.kind == NoteKind.NAMELESS_RANGES for note in trace.notes)


@pytest.mark.slow
def test_a_real_nsys_records_ranges_payloads_and_the_mark(tmp_path: Path) -> None:
    report = record_and_export(
        [sys.executable, "-c", LOOP], tmp_path, **{CAPTURE: "1:2:3", RUN_FOLDER: str(tmp_path)}
    )
    status = take_statuses(tmp_path)[-1]  # of the last attempt, if nsys crashed in one
    phases = instances(report)
    # without a GPU no window opens, and the whole run is recorded
    assert phases == {"step": 6, "step/data": 6, "step/forward": 6, "forward": 3}
    assert sum(phases.values()) == status.ranges
    events = nvtx_events(report)
    assert [payload for name, payload in events if name == "step"] == list(range(6))
    (mark,) = [text for text, _ in events if text and text.startswith('{"nsysflow"')]
    assert json.loads(mark)["nsysflow"] == {
        "capture": "1:2:3",
        "unprofiled_step_ns": status.unprofiled_step_ns,
    }


OWN = """
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from nsysflow import region, steps

def done(profiler):
    profiler.export_chrome_trace("own.json")

off = torch.autograd.profiler.profile(enabled=False)
at = schedule(wait={wait}, warmup={warmup}, active={active}, repeat=1)
cpu = [ProfilerActivity.CPU]
with profile(activities=cpu, schedule=at, on_trace_ready=done) as profiler:
    for number in steps(range(12)):
        with region("forward"), record_function(f"body {{number}}"):
            torch.ones(8).sum()
        profiler.step()
print("trained")
"""


def names_in(trace: bytes) -> set[str]:
    return {event["name"] for event in json.loads(trace)["traceEvents"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wait", "warmup", "active", "recorded", "said"),
    [
        (0, 1, 8, False, "is running when the window opens"),
        (3, 1, 1, False, "stopped before the window closed"),
        (0, 1, 1, True, ""),
        (6, 1, 2, True, ""),
    ],
    ids=["records before", "inside", "ended before", "after"],
)
def test_the_programs_own_profiler_gets_its_steps_and_no_trace_mixes_both(
    tmp_path: Path, wait: int, warmup: int, active: int, recorded: bool, said: str
) -> None:
    code = OWN.format(wait=wait, warmup=warmup, active=active)
    ran = run_torch(code, tmp_path, **{COLLECTOR: "kineto", CAPTURE: "1:1:3"})
    assert (ran.returncode, ran.stdout) == (0, "trained\n"), ran.stderr
    bodies = {f"body {number}" for number in range(wait + warmup, wait + warmup + active)}
    assert bodies <= names_in((tmp_path / "own.json").read_bytes())
    ours = tmp_path / "report.pt.trace.json.gz"
    assert ours.exists() == recorded
    if recorded:
        in_window = {f"body {number}" for number in (2, 3, 4)}
        found = names_in(gzip.decompress(ours.read_bytes()))
        assert {name for name in found if name.startswith("body")} == in_window
    lines = [line for line in ran.stderr.splitlines() if line.startswith("nsysflow:")]
    assert len(lines) == (not recorded)
    assert all(said in line for line in lines)
    (status,) = take_statuses(tmp_path)
    assert (status.window, status.captured) == ("closed", 3)


def fake_torch(notes: Notes, reserved: tuple[int, int] = (0, 0)) -> SimpleNamespace:
    def note(what: str) -> None:
        notes.events.append((what, "", None))

    profiler = SimpleNamespace(start=lambda: note("start"), stop=lambda: note("stop"))
    return SimpleNamespace(
        cuda=SimpleNamespace(
            profiler=profiler,
            is_available=lambda: True,
            is_initialized=lambda: True,
            synchronize=lambda _device=None: note("synchronize"),
            device_count=lambda: 2,
            memory_reserved=lambda device: reserved[device],
        )
    )


def test_every_gpu_that_holds_memory_is_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(notes, (0, 1024)))
    synchronize()
    assert len(notes.events) == 2  # the current one, and the second one


def test_the_mark_comes_first_with_the_unprofiled_step(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded() as notes:
        monkeypatch.setitem(sys.modules, "torch", fake_torch(notes))
        capture = CudaProfilerCapture()
        capture.start({"capture": "3:2:5", "unprofiled_step_ns": 4_500_000})
        capture.stop()
    happened = [what for what, *_ in notes.events]
    assert happened == ["synchronize", "start", "mark", "synchronize", "stop"]
    mark = '{"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 4500000}}'
    assert notes.events[2] == ("mark", mark, None)


def test_a_failing_synchronize_keeps_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError

    with recorded() as notes:
        torch = fake_torch(notes)
        monkeypatch.setitem(sys.modules, "torch", torch)
        capture = CudaProfilerCapture()
        capture.start(None)
        monkeypatch.setattr(torch.cuda, "synchronize", fails)
        with pytest.raises(RuntimeError):
            capture.stop()
    assert notes.events[-1][0] == "stop"


RANGES = """
import torch
from nsysflow.runtime.recorders import FastRecordFunction
recorder = FastRecordFunction(torch, "ours")
close_early = recorder.open("early", None)
with torch.profiler.profile() as profile:
    close_inside = recorder.open("inside", None)
    close_late = recorder.open("late", None)
    close_early()
    close_inside()
close_late()
print(*sorted(event.name for event in profile.events() if "ours" in event.name))
"""


def test_ranges_may_begin_before_torchs_profiler_and_end_in_it(tmp_path: Path) -> None:
    ran = run_torch(RANGES, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "ours:inside ours:late\n"), ran.stderr
