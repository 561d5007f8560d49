"""What works on a machine, what to type, and how that is shown."""

import io
import json
from dataclasses import replace
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
from nsysflow.record.doctor import diagnose
from nsysflow.record.doctor_page import doctor_json, doctor_page
from tests.nsys.fakes import an_nsys, fake_nsys, places, script
from tests.record.machines import (
    HEALTHY,
    HOME,
    MISSING,
    NO_GPU,
    NSYS,
    OLD,
    check,
    diagnosis,
    lacking,
    machines,
)


def test_on_a_healthy_machine_there_is_nothing_to_do() -> None:
    found = diagnosis()
    assert {check.status for check in found.checks} == {"ok"}
    assert not any(check.advice or check.command for check in found.checks)
    assert found.profile
    assert found.works[0] == "profile"
    assert found.first == "nsysflow profile launch_bound"


def test_on_any_machine_what_works_first_is_what_to_type_and_a_problem_has_an_advice() -> None:
    for machine in machines():
        found = diagnose(machine)
        problems = [check for check in found.checks if check.status == "problem"]
        assert found.profile == (not problems)
        assert found.profile <= (found.works[0] in ("profile", "profile --collector kineto"))
        assert "analyze" in found.works
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


def test_without_nsys_torch_can_profile_the_gpu() -> None:
    found = diagnosis(nsys=MISSING, trial=None)
    assert check("nsys", nsys=MISSING, trial=None).status == "note"
    assert found.profile
    assert found.works == ("profile --collector kineto", "analyze")
    assert found.first == "nsysflow profile launch_bound --collector kineto"


@pytest.mark.parametrize(
    "seen",
    [
        {"gpus": NO_GPU},
        {"torch_cuda": None, "packages": {"torch": "2.13.0+cpu"}},
        {"torch_cuda": None, "packages": {}},
    ],
    ids=["no gpu", "torch for CPUs", "no torch"],
)
def test_without_nsys_and_without_torch_on_a_gpu_nothing_can_be_profiled(
    seen: dict[str, object],
) -> None:
    found = diagnosis(nsys=MISSING, trial=None, **seen)
    assert not found.profile
    assert found.works == ("analyze",)


def test_without_a_gpu_a_run_on_the_cpu_works() -> None:
    found = diagnosis(gpus=NO_GPU)
    assert not found.profile
    assert found.works == ("profile --on cpu", "analyze")
    assert found.first == "nsysflow profile launch_bound --on cpu"
    assert check("gpu", gpus=NO_GPU).seen == NO_GPU.problem
    assert not {"cuda", "gpu metrics"} & {check.check for check in found.checks}


@pytest.mark.parametrize(("profile", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_the_command_exits_with_1_if_profiling_cannot_work(
    argv: list[str], profile: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = HEALTHY if profile else replace(HEALTHY, gpus=NO_GPU)
    monkeypatch.setattr("nsysflow.record.machine.look_at_machine", lambda: seen)
    done = CliRunner().invoke(main, ["doctor", *argv])
    assert done.exit_code == code
    assert "\x1b" not in done.output
    assert not argv or json.loads(done.output)["profile"] is profile


def test_a_broken_nsys_is_a_problem_even_if_torch_could_record(tmp_path: Path) -> None:
    broken = script(tmp_path / "nsys", "echo out of order; exit 1")
    with pytest.raises(CaptureError) as caught:
        find_nsys(broken, places=places(tmp_path))
    found = check("nsys", nsys=caught.value, trial=None)
    assert found.status == "problem"
    assert "it said: out of order (exit 1)" in found.seen
    assert found.command == f"{broken} --version"
    with pytest.raises(NsysMissing) as missing:
        find_nsys(places=places(tmp_path))
    found = check("nsys", nsys=missing.value, trial=None)
    assert found.seen.startswith("no working nsys was found")
    assert found.command == "sudo apt install nsight-systems"


def test_an_nsys_older_than_the_drivers_cuda_is_a_problem() -> None:
    found = check("cuda", nsys=OLD)
    assert found.status == "problem"
    assert "12.4" in found.seen
    assert "13.0" in found.seen
    assert "no kernels" in found.seen
    assert diagnosis(nsys=OLD).works[0] == "profile --collector kineto"
    assert check("cuda", nsys=replace(NSYS, cupti=None)).status == "note"


def test_libraries_that_the_importer_lacks_can_be_installed_or_put_into_a_folder() -> None:
    seen: dict[str, object] = {"importer": lacking("libdw.so.1", "libelf.so.1"), "trial": None}
    found = check("reports", **seen)
    assert found.status == "problem"
    assert found.command == "sudo apt install libdw1 libelf1"
    assert str(HEALTHY.libraries) in found.advice
    other = check("reports", importer=lacking("libssh.so"), trial=None)
    assert other.command == f"mkdir -p {HEALTHY.libraries}"
    missing = check("reports", importer=ImporterProblem(text="it is missing"), trial=None)
    assert missing.command == "sudo apt install nsight-systems"
    failed = check("reports", trial=Trial(problem="it ended with 1"))
    assert (failed.status, failed.seen) == ("problem", "it ended with 1")
    assert diagnosis(**seen).works == ("profile --collector kineto", "analyze")


@pytest.mark.parametrize(
    ("nsys", "version", "trial", "status"),
    [
        (OLD, "0.2.16", Trial(ranges=True), "ok"),
        (NSYS, "0.2.11", Trial(ranges=False), "note"),
        (OLD, "0.2.12", None, "note"),
        (OLD, "0.2.11", None, "ok"),
        (OLD, "0.3.0", Trial(problem="x"), "note"),
        (NSYS, "0.2.16", None, "ok"),
        (MISSING, "0.2.16", None, "ok"),
    ],
)
def test_the_trial_decides_about_nvtx_and_without_one_the_versions_do(
    nsys: Nsys | CaptureError, version: str, trial: Trial | None, status: str
) -> None:
    assert check("nvtx", nsys=nsys, packages={"nvtx": version}, trial=trial).status == status


def test_the_nvtx_to_install_is_one_that_this_nsys_records_unless_torch_records() -> None:
    cpu: dict[str, Any] = {"packages": {}, "torch_cuda": None}
    assert check("nvtx", nsys=OLD, **cpu).command == "pip install 'nvtx<=0.2.11'"
    assert check("nvtx", **cpu).command == "pip install nvtx"
    found = check("nvtx", packages={"torch": "2.11.0"}, torch_cuda="13.0")
    assert found.status == "ok"
    assert "torch.cuda.nvtx" in found.seen


def test_a_torch_for_cpus_is_a_note_only_on_a_machine_with_a_gpu() -> None:
    seen = {"packages": {"torch": "2.13.0+cpu"}, "torch_cuda": None}
    assert check("torch", **seen).status == "note"
    assert check("torch", gpus=NO_GPU, **seen).status == "ok"


@pytest.mark.parametrize(
    ("samples", "paranoid", "capabilities", "status", "advice"),
    [
        (True, 4, (), "ok", ""),
        (None, 2, (), "ok", ""),
        (None, 3, (), "note", "sysctl kernel.perf_event_paranoid=2"),
        (None, None, (), "note", "sysctl"),
        (None, 4, (38,), "ok", ""),
        (False, 2, (), "note", "container"),
        (False, 4, (21,), "note", "container"),
        (False, 4, (), "note", "sysctl"),
    ],
)
def test_backtraces_need_cpu_sampling(
    samples: bool | None,
    paranoid: int | None,
    capabilities: tuple[int, ...],
    status: str,
    advice: str,
) -> None:
    found = check(
        "backtraces", samples=samples, paranoid=paranoid, capabilities=frozenset(capabilities)
    )
    assert found.status == status
    assert advice in f"{found.advice}: {found.command}"


def test_python_is_sampled_by_an_nsys_that_exports_what_it_saw() -> None:
    able = an_nsys(Path("/opt/nsys"), "--python-sampling", "--include-json")
    assert check("samples", nsys=able).status == "ok"
    found = check("samples", nsys=an_nsys(Path("/opt/nsys"), "--python-sampling"))
    assert (found.status, found.command) == ("note", "sudo apt install nsight-systems")


@pytest.mark.parametrize(
    ("admin_only", "capabilities", "status"),
    [(True, (21,), "ok"), (True, (38,), "note"), (False, (), "ok"), (None, (), "note")],
)
def test_gpu_metrics_need_an_administrator_or_a_driver_that_allows_all_users(
    admin_only: bool | None, capabilities: tuple[int, ...], status: str
) -> None:
    found = check("gpu metrics", admin_only=admin_only, capabilities=frozenset(capabilities))
    assert found.status == status


def test_the_gpus_are_counted_by_name_and_too_little_room_for_nsys_is_a_note() -> None:
    assert check("gpu").seen == "2 x NVIDIA H200, driver 580.95, CUDA 13.0"
    assert check("disk", temp_free_bytes=2_000_000_000).status == "note"
    assert check("disk", temp_free_bytes=4_000_000_000).seen == "4.0 GB free in /home/me/tmp"


def test_an_nsys_is_shown_with_its_version_path_and_origin(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "path/nsys", "2025.3.1.90-1v0")
    seen = check("nsys", nsys=find_nsys(places=places(tmp_path))).seen
    assert seen == f"2025.3.1.90-1v0 at {program}, on PATH"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_only_commands_are_wider_than_the_page(width: int) -> None:
    for one in machines():
        for line in doctor_page(diagnose(one), HOME, width=width):
            copied = line.plain.startswith(" " * 23) or line.plain.startswith(("Works", "Type"))
            assert copied or line.cell_len <= min(width, 100)


def test_the_page_ends_with_what_works_and_what_to_type_first() -> None:
    *_, works, first = (line.plain for line in doctor_page(diagnosis(), HOME, width=80))
    assert works.startswith("Works here: profile, ")
    assert first == "Type first: nsysflow profile launch_bound"


def test_no_color_means_no_escape_codes_at_all() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, color_system="256")
    for line in doctor_page(diagnosis(gpus=NO_GPU, temp_free_bytes=0), HOME, width=80):
        console.print(line)
    assert "problem" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_nothing_shows_the_home_folder() -> None:
    for one in machines():
        found = diagnose(one)
        shown = [line.plain for line in doctor_page(found, HOME, width=80)]
        assert str(HOME) not in "\n".join([*shown, doctor_json(found, HOME)])


def test_the_document_holds_every_check_and_whether_profiling_works() -> None:
    found = json.loads(doctor_json(diagnosis(gpus=NO_GPU), HOME))
    assert set(found) == {"checks", "works", "first", "profile"}
    assert found["profile"] is False
    keys = {"check", "status", "seen", "advice", "command"}
    assert all(set(check) == keys for check in found["checks"])
