"""A run that cannot work is refused before anything starts."""

from pathlib import Path

import pytest

from nsysflow.nsys.installations import Places
from tests.nsys.fakes import places
from tests.record.fake import NO_GPU, command, profiled

pytestmark = pytest.mark.usefixtures("machine_with_gpu")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch, machine_with_gpu: None) -> None:
    monkeypatch.setattr("nsysflow.record.machine.gpus", lambda: NO_GPU)


@pytest.fixture
def no_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine_with_gpu: None) -> None:
    monkeypatch.setattr(Places, "here", lambda: places(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--", "nan_check"], "nan_check is a built-in workload"),
        (["nan_check", "--nproc", "2"], "needs 2 GPUs, one per rank, and this machine has 1"),
        (["ddp"], "Start fewer ranks:\n  nsysflow profile ddp --nproc 1\n"),
    ],
)
def test_what_cannot_be_started_is_an_error_that_says_what_can(words: list[str], said: str) -> None:
    ran = profiled(*words)
    assert ran.exit_code == 1
    assert said in ran.stderr
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["nan_chek"], "nan_check"), (["nan_check", "--variant", "asink"], "async")],
)
def test_a_misspelt_name_gets_the_nearest_one(words: list[str], meant: str) -> None:
    ran = profiled(*words)
    assert ran.exit_code == 2
    assert meant in ran.stderr


@pytest.mark.usefixtures("no_nsys", "no_gpu")
@pytest.mark.parametrize("on", ["cuda", "cpu"])
def test_a_dry_run_needs_neither_nsys_nor_gpu(on: str) -> None:
    ran = profiled("-o", "out", "--dry-run", "--on", on, "--trace", "cuda,nvtx", *command())
    assert ran.exit_code == 0
    assert "note: no nsys was found here" in ran.stderr
    _, run, export = ran.stdout.splitlines()
    assert " nsys profile --output=" in run
    assert export.startswith("nsys export --type=sqlite ")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_one_message_says_what_works() -> None:
    ran = profiled("nan_check")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("nsysflow: no NVIDIA GPU can be used here: no driver (NVML).")
    assert ran.stderr.endswith("\n  nsysflow profile nan_check --on cpu\n")
    assert "nsysflow doctor" in ran.stderr


@pytest.mark.usefixtures("no_nsys")
def test_without_nsys_torch_profiler_records_and_a_note_says_what_is_missing() -> None:
    ran = profiled("-o", "out", *command())
    assert "note: no nsys was found, so torch.profiler records this run" in ran.stderr
    assert ran.exit_code == 1  # the program used no steps
    assert "or record with nsys" in ran.stderr


def test_a_run_on_the_cpu_asks_nsys_for_nothing_that_needs_a_gpu() -> None:
    asked = ("--backtrace", "waits", "--gpu-metrics", "--sample-python", "9")
    ran = profiled("-o", "out", "--dry-run", "--on", "cpu", *asked, *command())
    assert "--trace=nvtx " in ran.stdout
    assert "it ignores --backtrace, --sample-python, --gpu-metrics" in ran.stderr
    assert not any(word in ran.stdout for word in ("python-sampling", "backtrace", "metrics"))
