"""A capture records exactly the window, and describes it."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.captures import CudaProfilerCapture, synchronize
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR, RANK, RUN_FOLDER, STACKS
from tests.recording import Notes, nvtx_events, record_and_export, recorded
from tests.runtime.programs import LOOP, TRAINS, instances, run_torch


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
    assert "torch" in status.versions
    before = first.read_bytes()
    assert run_torch(TRAINS, tmp_path, **asked).returncode == 0
    (other,) = take_statuses(tmp_path)
    second = tmp_path / f"report-{other.pid}.pt.trace.json.gz"
    assert {*tmp_path.iterdir()} == {first, second}
    assert first.read_bytes() == before


@pytest.mark.slow
def test_torch_profiler_leaves_a_ranks_trace_with_stacks_when_the_program_ends_inside_the_window(
    tmp_path: Path,
) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:30", RANK: "1", STACKS: "1"}
    assert run_torch(f"{TRAINS}raise SystemExit(5)", tmp_path, **asked).returncode == 5
    (status,) = take_statuses(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "rank1.pt.trace.json.gz"
    assert instances(path)["step"] == status.captured == 6
    assert status.window == "open"
    assert functions_recorded(path)


@pytest.mark.slow
def test_a_trace_that_cannot_be_written_does_not_stop_the_program(tmp_path: Path) -> None:
    asked = {COLLECTOR: "kineto", CAPTURE: "1:2:3", RUN_FOLDER: str(tmp_path / "gone")}
    done = run_torch(f"{TRAINS}print('trained')", tmp_path, **asked)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "nsysflow: cannot write the trace" in done.stderr
    assert "Traceback" not in done.stderr


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


def fake_torch(
    notes: Notes, *, available: bool = True, reserved: tuple[int, int] = (0, 0)
) -> SimpleNamespace:
    def note(what: str) -> None:
        notes.events.append((what, "", None))

    profiler = SimpleNamespace(start=lambda: note("start"), stop=lambda: note("stop"))
    return SimpleNamespace(
        cuda=SimpleNamespace(
            profiler=profiler,
            is_available=lambda: available,
            is_initialized=lambda: available,
            synchronize=lambda _device=None: note("synchronize"),
            device_count=lambda: 2,
            memory_reserved=lambda device: reserved[device],
        )
    )


def test_every_gpu_that_holds_memory_is_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(notes, reserved=(0, 1024)))
    synchronize()
    assert len(notes.events) == 2  # the current one, and the second one


def test_the_mark_comes_first_and_holds_the_unprofiled_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with recorded() as notes:
        monkeypatch.setitem(sys.modules, "torch", fake_torch(notes))
        capture = CudaProfilerCapture()
        capture.start({"capture": "3:2:5", "unprofiled_step_ns": 4_500_000})
        capture.stop()
    assert notes.events == [
        ("synchronize", "", None),
        ("start", "", None),
        ("mark", '{"nsysflow": {"capture": "3:2:5", "unprofiled_step_ns": 4500000}}', None),
        ("synchronize", "", None),
        ("stop", "", None),
    ]


def test_a_step_that_was_not_timed_is_null_in_the_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded() as notes:
        monkeypatch.setitem(sys.modules, "torch", fake_torch(notes, available=False))
        CudaProfilerCapture().start({"capture": "0:0:5", "unprofiled_step_ns": None})
    assert [text for _, text, _ in notes.events] == [
        '{"nsysflow": {"capture": "0:0:5", "unprofiled_step_ns": null}}'
    ]


def test_the_recording_is_kept_when_the_last_synchronize_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
