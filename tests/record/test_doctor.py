"""What works on a machine, what to type, and how that is shown."""

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from nsysflow.base.errors import CaptureError, NsysMissing
from nsysflow.cli.main import main
from nsysflow.nsys.installations import find_nsys
from nsysflow.nsys.program import Nsys
from nsysflow.nsys.run import ImporterProblem, Trial
from nsysflow.record.doctor import Check, Diagnosis, Status, diagnose
from nsysflow.record.doctor_page import doctor_json, doctor_page
from nsysflow.record.machine import Gpus, Machine
from tests.nsys.fakes import an_nsys, fake_nsys, places, script

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
    python="3.12.1",
    nsysflow="0.1.0",
    nsys=NSYS,
    trial=RECORDS,
    gpus=H200,
    packages={"nvtx": "0.2.16", "torch": "2.11.0+cu130", "triton": "3.6.0"},
    torch_cuda="13.0",
    samples=True,
    paranoid=2,
    capabilities=frozenset({21, 38}),
    admin_only=True,
    temp=HOME / "tmp",
    temp_free_bytes=70_000_000_000,
    torchrun=HOME / "bin/torchrun",
    libraries=HOME / ".cache/nsysflow/lib",
    home=HOME,
)


def lacking(*libraries: str) -> ImporterProblem:
    return ImporterProblem(text="its importer lacks libraries", libraries=libraries)


def diagnosis(seen: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a machine that is healthy except for what was seen."""
    return diagnose(replace(HEALTHY, **seen))


def check(name: str, seen: dict[str, Any]) -> Check:
    (found,) = (check for check in diagnosis(seen).checks if check.check == name)
    return found


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
def test_what_works_needs_its_parts(
    seen: dict[str, Any], works: tuple[str, ...], first: str
) -> None:
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


@pytest.mark.parametrize(
    ("name", "seen", "status", "said"),
    [
        ("nsys", NO_NSYS, "note", "no nsys was found. Install it: sudo apt install"),
        ("gpu", {}, "ok", "2 x NVIDIA H200, driver 580.95, CUDA 13.0"),
        ("gpu", {"gpus": NO_GPU}, "problem", "NVML Shared Library Not Found (NVML)"),
        ("cuda", {"nsys": OLD}, "problem", "up to 12.4, and the driver has CUDA 13.0: it would"),
        ("cuda", {"nsys": replace(NSYS, cupti=None)}, "note", "is unknown"),
        (
            "reports",
            {"importer": lacking("libdw.so.1", "libelf.so.1")},
            "problem",
            "libdw1 libelf1",
        ),
        ("reports", {"importer": lacking("libdw.so.1")}, "problem", f"into {HEALTHY.libraries}"),
        ("reports", {"importer": lacking("libssh.so")}, "problem", f"mkdir -p {HEALTHY.libraries}"),
        ("reports", {"importer": NO_IMPORTER}, "problem", "sudo apt install nsight-systems"),
        ("reports", {"trial": FAILED}, "problem", "a trial ended with 1"),
        # the trial decides about nvtx, and without one the versions do
        ("nvtx", nvtx("0.2.16", OLD, RECORDS), "ok", "its ranges reach the report"),
        ("nvtx", nvtx("0.2.11", NSYS, LOSES), "note", "silently drops the ranges"),
        ("nvtx", nvtx("0.2.12", OLD, None), "note", ""),
        ("nvtx", nvtx("0.2.11", OLD, None), "ok", ""),
        ("nvtx", nvtx("0.3.0", OLD, FAILED), "note", ""),
        ("nvtx", nvtx("0.2.16", NSYS, None), "ok", ""),
        ("nvtx", nvtx("0.2.16", MISSING, None), "ok", ""),
        ("nvtx", NO_TORCH | {"nsys": OLD}, "note", "pip install 'nvtx<=0.2.11'"),
        ("nvtx", NO_TORCH, "note", "pip install nvtx"),
        ("nvtx", {"packages": {"torch": "2.11.0"}}, "ok", "torch.cuda.nvtx records ranges"),
        ("torch", CPU_TORCH, "note", "it cannot use this GPU"),
        ("torch", CPU_TORCH | {"gpus": NO_GPU}, "ok", "a build for CPUs"),
        ("backtraces", allowed(True, 4), "ok", ""),
        ("backtraces", allowed(None, 2), "ok", ""),
        ("backtraces", allowed(None, 3), "note", "sysctl kernel.perf_event_paranoid=2"),
        ("backtraces", allowed(None, None), "note", "sysctl"),
        ("backtraces", allowed(None, 4, 38), "ok", ""),
        ("backtraces", allowed(False, 2), "note", "container"),
        ("backtraces", allowed(False, 4, 21), "note", "container"),
        ("backtraces", allowed(False, 4), "note", "sysctl"),
        ("samples", {}, "ok", ""),
        ("samples", {"nsys": UNABLE}, "note", "2025.3 can: sudo apt install nsight-systems"),
        ("gpu metrics", counters(True, 21), "ok", "an administrator"),
        ("gpu metrics", counters(True, 38), "note", "only administrators"),
        ("gpu metrics", counters(False), "ok", "every user"),
        ("gpu metrics", counters(None), "note", "it is unknown"),
        ("disk", {"temp_free_bytes": 2_000_000_000}, "note", "TMPDIR"),
        ("disk", {"temp_free_bytes": 4_000_000_000}, "ok", "4.0 GB free in /home/me/tmp"),
    ],
)
def test_a_check_says_what_to_do(
    name: str, seen: dict[str, Any], status: Status, said: str
) -> None:
    found = check(name, seen)
    assert found.status == status
    assert said in f"{found.seen}. {found.advice}: {found.command}"


def test_a_healthy_machine_passes_all_checks_and_one_without_a_gpu_has_none_of_its_cuda() -> None:
    assert {check.status for check in diagnosis({}).checks} == {"ok"}
    checks = {check.check for check in diagnosis({"gpus": NO_GPU}).checks}
    assert {check.check for check in diagnosis({}).checks} - checks == {"cuda", "gpu metrics"}


def test_a_working_nsys_is_shown_with_its_origin_and_a_broken_one_quoted(tmp_path: Path) -> None:
    broken = script(tmp_path / "nsys", "echo out of order; exit 1")
    with pytest.raises(CaptureError) as caught:
        find_nsys(broken, places=places(tmp_path))
    found = check("nsys", {"nsys": caught.value, "trial": None})
    assert found.status == "problem"
    assert "it said: out of order (exit 1)" in found.seen
    assert found.command == f"{broken} --version"
    program = fake_nsys(tmp_path / "path/nsys", "2025.3.1.90-1v0")
    found = check("nsys", {"nsys": find_nsys(places=places(tmp_path))})
    assert found.seen == f"2025.3.1.90-1v0 at {program}, on PATH"


@pytest.mark.parametrize(("gpus", "code"), [(H200, 0), (NO_GPU, 1)])
@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_the_command_exits_with_1_if_profiling_cannot_work(
    argv: list[str], gpus: Gpus, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = replace(HEALTHY, gpus=gpus)
    monkeypatch.setattr("nsysflow.record.machine.look_at_machine", lambda: seen)
    done = CliRunner().invoke(main, ["doctor", *argv])
    assert done.exit_code == code
    if not argv:
        assert done.output.splitlines()[-2].startswith("Works here: profile")
        assert done.output.splitlines()[-1].startswith("Type first: nsysflow profile launch_bound")
        return
    found = json.loads(done.output)
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


def test_no_color_means_no_escape_codes_at_all() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, color_system="256")
    for line in doctor_page(diagnosis({"gpus": NO_GPU, "temp_free_bytes": 0}), HOME, width=80):
        console.print(line)
    assert "problem" in out.getvalue()
    assert "\x1b" not in out.getvalue()
