"""What works on a machine, what to type, and how that is shown."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.nsys.program import Nsys
from nsysflow.nsys.run import ImporterProblem, Trial
from nsysflow.record import machine as machine_module
from nsysflow.record.doctor import Check, Diagnosis, diagnose, doctor_json, doctor_page
from nsysflow.record.machine import Gpus, Machine
from nsysflow.record.machine import gpus as gpus_here
from tests.cli.running import run
from tests.nsys.fakes import an_nsys

HOME = Path("/home/me")
NSYS = replace(an_nsys(HOME / "nsys"), cupti=(13, 0))
OLD = replace(NSYS, version=(2023, 4, 4), version_text="2023.4.4", cupti=(12, 4))
UNABLE = an_nsys(HOME / "nsys", "--python-sampling")
H200 = Gpus(names=("NVIDIA H200", "NVIDIA H200"), driver="580.95", cuda=(13, 0))
NO_GPU = Gpus(problem="NVML Shared Library Not Found (NVML)")
MISSING = NsysMissing("no nsys was found", "Install it", "sudo apt install nsight-systems")
BROKEN = CaptureError("nsys does not work", "See it for yourself", "nsys --version")
RECORDS, LOSES = Trial(ranges=True), Trial(ranges=False)
FAILED = Trial(problem="a trial ended with 1")
NO_IMPORTER = ImporterProblem(text="its importer is missing")
HEALTHY = Machine(
    python="3.12.1", nsysflow="0.1.0", nsys=NSYS, trial=RECORDS, gpus=H200,
    packages={"nvtx": "0.2.16", "torch": "2.11.0+cu130", "triton": "3.6.0"}, torch_cuda="13.0",
    samples=True, paranoid=2, capabilities=frozenset({21, 38}),
    readings={"SM clock": 1980, "power": 351_200}, admin_only=True, cpus=8, counts_waits=True,
    temp=HOME / "tmp", temp_free_bytes=70_000_000_000, torchrun=HOME / "bin/torchrun",
    libraries=HOME / ".cache/nsysflow/lib", home=HOME,
)  # fmt: skip


def lacking(*libraries: str) -> ImporterProblem:
    return ImporterProblem(text="its importer lacks libraries", libraries=libraries)


def diagnosis(seen: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a machine that is healthy except for what was seen."""
    return diagnose(replace(HEALTHY, **seen))


def machines() -> Iterator[Machine]:
    """Machines of every kind, healthy or not."""
    nsyses: tuple[tuple[Nsys | CaptureError, Trial | None, ImporterProblem | None], ...] = (
        (NSYS, RECORDS, None),
        (NSYS, LOSES, None),
        (OLD, FAILED, None),
        (replace(OLD, cupti=None), None, lacking("libdw.so.1")),
        (NSYS, None, NO_IMPORTER),
        (MISSING, None, None),
        (BROKEN, None, None),
    )
    torches: tuple[tuple[dict[str, str], str | None], ...] = (
        ({}, None),
        ({"nvtx": "0.2.16", "torch": "2.13.0+cpu"}, None),
        ({"nvtx": "0.2.11", "torch": "2.13.0"}, "13.0"),
    )
    poor = replace(HEALTHY, capabilities=frozenset(), samples=False, paranoid=4, torchrun=None)
    poor = replace(poor, temp_free_bytes=10_000)
    for machine, (nsys, trial, importer), gpus, (packages, cuda) in product(
        (HEALTHY, poor), nsyses, (H200, NO_GPU), torches
    ):
        machine = replace(machine, nsys=nsys, trial=trial, importer=importer, gpus=gpus)
        yield replace(machine, packages=packages, torch_cuda=cuda)


def test_on_any_machine_what_works_first_is_what_to_type_and_a_problem_has_an_advice() -> None:
    for machine in machines():
        found = diagnose(machine)
        problems = [check for check in found.checks if check.status == "problem"]
        assert found.profile == (not problems)
        assert found.profile <= (found.works[0] in ("profile", "profile --collector kineto"))
        assert found.works[-1] == "analyze"
        options = found.works[0].removeprefix("profile").strip()
        if found.works == ("analyze",):
            assert found.first == "nsysflow demo"
        else:
            assert found.first.startswith("nsysflow profile")
            assert options in found.first
            assert ("-- python" in found.first) or "torch" in machine.packages
        for one in found.checks:
            assert (one.status == "ok") == (one.advice == ""), one
            assert one.seen
            assert one.advice or not one.command
            assert "\n" not in one.seen + one.advice + one.command


NO_NSYS = {"nsys": MISSING, "trial": None}
NO_TORCH: dict[str, Any] = {"packages": {}, "torch_cuda": None}
CPU_TORCH: dict[str, Any] = {"packages": {"torch": "2.13.0+cpu"}, "torch_cuda": None}
ALL = ("profile", "profile --collector kineto", "profile --on cpu", "analyze")


@pytest.mark.parametrize(
    ("seen", "works", "first"),
    [
        ({}, ALL, "profile launch_bound"),
        (NO_NSYS, (ALL[1], ALL[3]), "profile launch_bound --collector kineto"),
        ({"importer": lacking("libdw.so.1"), "trial": None}, (ALL[1], ALL[3]), "profile launch_b"),
        ({"nsys": OLD}, ALL[1:], "profile launch_bound --collector kineto"),
        ({"gpus": NO_GPU}, ALL[2:], "profile launch_bound --on cpu"),
        (NO_NSYS | {"gpus": NO_GPU}, ALL[3:], "demo"),
        (NO_NSYS | CPU_TORCH, ALL[3:], "demo"),
        (NO_NSYS | NO_TORCH, ALL[3:], "demo"),
    ],
)
def test_what_works_needs_parts(seen: dict[str, Any], works: tuple[str, ...], first: str) -> None:
    found = diagnosis(seen)
    assert found.works == works
    assert found.first.startswith(f"nsysflow {first}")
    assert found.profile == (not seen or (seen == NO_NSYS))


def allowed(samples: bool | None, paranoid: int | None, *capabilities: int) -> dict[str, Any]:
    return {"samples": samples, "paranoid": paranoid, "capabilities": frozenset(capabilities)}


def counters(admin_only: bool | None, *capabilities: int) -> dict[str, Any]:
    return {"admin_only": admin_only, "capabilities": frozenset(capabilities)}


def nvtx(version: str, nsys: Nsys | CaptureError, trial: Trial | None) -> dict[str, Any]:
    return {"packages": {"nvtx": version}, "nsys": nsys, "trial": trial}


CHECKED: Final[dict[str, list[dict[str, Any]]]] = {
    "nsys": [NO_NSYS],
    "gpu": [{}],
    "cuda": [{"nsys": OLD}, {"nsys": replace(NSYS, cupti=None)}],
    "reports": [{"importer": lacking("libdw.so.1", "libelf.so.1")}, {"trial": FAILED}],
    # the trial decides about nvtx, and without one the versions do
    "nvtx": [
        *(nvtx("0.2.16", OLD, RECORDS), nvtx("0.2.11", NSYS, LOSES), nvtx("0.2.11", OLD, None)),
        *(nvtx("0.3.0", OLD, FAILED), nvtx("0.2.16", NSYS, None)),
        *(NO_TORCH | {"nsys": OLD}, {"packages": {"torch": "2.11.0"}}),
    ],
    "torch": [CPU_TORCH],
    "backtraces": [
        *(allowed(True, 4), allowed(None, 2), allowed(None, 3), allowed(None, 4, 38)),
        *(allowed(False, 2), allowed(False, 4, 21)),
    ],
    "samples": [{}, {"nsys": UNABLE}],
    "gil": [{}, {"nsys": replace(NSYS, traces=frozenset({"cuda"}))}],
    "gpu metrics": [counters(True, 21), counters(True, 38), counters(None)],
    "clocks": [{"readings": None}, {"readings": {"SM clock": 1, "power": None}}],
    "cpus": [{"counts_waits": False, "cpus": None}, *({"cpu_limit": n} for n in (2.5, 0.5, 8.0))],
    "disk": [{"temp_free_bytes": 2_000_000_000}],
}
"""What is seen of a machine; what is said of it is in tests/report/pages/doctor.txt."""


def checks() -> Iterator[Check]:
    for name, every in CHECKED.items():
        for seen in every:
            yield from (check for check in diagnosis(seen).checks if check.check == name)


def test_a_healthy_machine_passes_all_checks_and_one_without_a_gpu_has_none_of_its_cuda() -> None:
    healthy, without = diagnosis({}).checks, diagnosis({"gpus": NO_GPU}).checks
    assert {check.status for check in healthy} == {"ok"}
    gone = {check.check for check in healthy} - {check.check for check in without}
    assert gone == {"cuda", "gpu metrics", "clocks"}


@pytest.mark.parametrize(("gpus", "code"), [(H200, 0), (NO_GPU, 1)])
@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_the_command_exits_with_1_if_profiling_cannot_work(
    argv: list[str], gpus: Gpus, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = replace(HEALTHY, gpus=gpus)
    monkeypatch.setattr("nsysflow.record.machine.look_at_machine", lambda: seen)
    output = run("doctor", *argv, code=code).output
    if not argv:
        assert output.splitlines()[-2].startswith("Works here: profile")
        assert output.splitlines()[-1].startswith("Type first: nsysflow profile launch_bound")
        return
    found = json.loads(output)
    assert found.keys() == {"checks", "works", "first", "profile"}
    assert found["profile"] is (code == 0)
    keys = {"check", "status", "seen", "advice", "command"}
    assert all(check.keys() == keys for check in found["checks"])


def test_only_commands_are_wider_than_the_page_and_nothing_shows_the_home_folder() -> None:
    for found in map(diagnose, machines()):
        assert str(HOME) not in doctor_json(found, HOME)
        for width in (60, 80, 100, 200):
            for line in doctor_page(found, HOME, width=width):
                copied = line.plain.startswith((" " * 23, "Works", "Type"))
                assert copied or line.cell_len <= min(width, 100)
                assert str(HOME) not in line.plain


def test_the_files_of_linux_and_the_driver_are_understood(tmp_path: Path) -> None:
    status, options = tmp_path / "status", tmp_path / "params"
    status.write_text("Name:\tx\nCapInh:\t0000000000000001\nCapEff:\t0000004000200000\n")
    assert machine_module._capabilities(status) == {21, 38}
    for line, admin_only in (
        ("RmProfilingAdminOnly: 1", True),
        ("RmProfilingAdminOnly: 0", False),
        ("NVreg_RestrictProfilingToAdminUsers: 0", False),
        ("EnableMSI: 1", None),
    ):
        options.write_text(f"ResmanDebugLevel: 4294967295\n{line}\nMemoryPoolSize: 0\n")
        assert machine_module._admin_only(options) is admin_only
    (tmp_path / "paranoid").write_text("-1\n")
    assert machine_module._paranoid(tmp_path / "paranoid") == -1
    gone = tmp_path / "gone"
    assert machine_module._capabilities(gone) == frozenset()
    assert machine_module._admin_only(gone) is machine_module._paranoid(gone) is None


@pytest.mark.parametrize(
    ("text", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\nhip = None", "13.0"),
        ('cuda = "12.4"', "12.4"),
        ("cuda: Optional[str] = None\nxpu = '1.0'", None),
        ("debug = False\ncudart = '13.0'", None),
    ],
)
def test_the_cuda_of_torch_is_read_from_its_version_file(text: str, cuda: str | None) -> None:
    found = machine_module._CUDA_BUILD.search(f"__version__ = '2.13.0'\n{text}\n")
    assert (found[1] if found else None) == cuda


def test_looking_at_this_machine_does_not_import_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Mock(side_effect=NsysMissing("no nsys was found"))
    monkeypatch.setattr("nsysflow.record.machine.find_nsys", nowhere)
    before = set(sys.modules)
    seen = machine_module.look_at_machine()
    assert isinstance(seen.nsys, NsysMissing)
    assert not {"torch", "triton"} & (set(sys.modules) - before)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", seen.python)
    assert seen.temp_free_bytes > 0


class NVMLError(Exception):
    """Stands in for NVML's own error."""


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """NVML on a machine with two GPUs."""
    fake = Mock(NVMLError=NVMLError)
    fake.nvmlSystemGetDriverVersion.return_value = "580.95.05"
    fake.nvmlSystemGetCudaDriverVersion.return_value = 13010
    fake.nvmlDeviceGetCount.return_value = 2
    fake.nvmlDeviceGetHandleByIndex.side_effect = int
    fake.nvmlDeviceGetName.side_effect = ("NVIDIA H200", "NVIDIA A100").__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_gpus_their_driver_and_its_cuda_are_found_or_why_there_are_none(nvml: Mock) -> None:
    names = ("NVIDIA H200", "NVIDIA A100")
    assert gpus_here() == Gpus(names=names, driver="580.95.05", cuda=(13, 1))
    assert nvml.nvmlInit.call_count == nvml.nvmlShutdown.call_count == 1
    nvml.nvmlDeviceGetCount.return_value = 0
    assert gpus_here().problem == "the driver sees no GPU"
    assert gpus_here().driver == "580.95.05"
    nvml.nvmlInit.side_effect = NVMLError("NVML Shared Library Not Found")
    assert gpus_here() == Gpus(problem="NVML Shared Library Not Found (NVML)")
