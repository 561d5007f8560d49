"""What the doctor makes of a machine, and what it tells to type."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nsysflow.cli import main
from nsysflow.doctor import Check, Diagnosis, Machine, as_json, diagnosed, machine, page
from nsysflow.errors import CaptureError, NsysMissing
from nsysflow.gpu import Gpus
from nsysflow.nsys import Nsys, find
from nsysflow.nsys.trial import Trial
from tests.nsys.fakes import an_nsys, fake_nsys, places, script

HOME = Path("/home/me")
NSYS = replace(an_nsys(HOME / "nsys"), cupti=(13, 0))
OLD = replace(NSYS, version=(2023, 4, 4), version_text="2023.4.4", cupti=(12, 4))
H200 = Gpus(names=("NVIDIA H200", "NVIDIA H200"), driver="580.95", cuda=(13, 0))
NO_GPU = Gpus(problem="NVML Shared Library Not Found (NVML)")
MISSING = NsysMissing("no nsys was found. Install it:\n  sudo apt install nsight-systems")
BROKEN = CaptureError("nsys, which --nsys names, is not one. See by hand:\n  nsys --version")

HEALTHY = Machine(
    python="3.12.1",
    nsysflow="0.1.0",
    nsys=NSYS,
    trial=Trial(ranges=True),
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


def check(name: str, **seen: object) -> Check:
    """The check of that name on a healthy machine but for what was seen."""
    (found,) = (check for check in checks(**seen) if check.check == name)
    return found


def checks(**seen: object) -> tuple[Check, ...]:
    return diagnosis(**seen).checks


def diagnosis(**seen: object) -> Diagnosis:
    return diagnosed(replace(HEALTHY, **seen))  # type: ignore[arg-type]


def machines() -> Iterator[Machine]:
    """Machines of every kind, sound and not."""
    nsyses: tuple[tuple[Nsys | CaptureError, Trial | None, str | None], ...] = (
        (NSYS, Trial(ranges=True), None),
        (NSYS, Trial(ranges=False), None),
        (OLD, Trial(problem="a trial ended with 1"), None),
        (replace(OLD, cupti=None), None, "its importer lacks libraries: libdw.so.1"),
        (NSYS, None, "its importer is missing: there is none"),
        (MISSING, None, None),
        (BROKEN, None, None),
    )
    torches: tuple[tuple[dict[str, str], str | None], ...] = (
        ({}, None),
        ({"nvtx": "0.2.16", "torch": "2.13.0+cpu"}, None),
        ({"nvtx": "0.2.11", "torch": "2.13.0"}, "13.0"),
    )
    for (nsys, trial, importer), gpus, (packages, cuda), poor in product(
        nsyses, (H200, NO_GPU), torches, (False, True)
    ):
        found = replace(HEALTHY, nsys=nsys, trial=trial, importer=importer, gpus=gpus)
        found = replace(found, packages=packages, torch_cuda=cuda)
        if poor:
            found = replace(
                found,
                capabilities=frozenset(),
                samples=False,
                paranoid=4,
                temp_free_bytes=10_000,
                torchrun=None,
            )
        yield found


def test_a_healthy_machine_has_nothing_to_be_done() -> None:
    found = diagnosis()
    assert {check.status for check in found.checks} == {"ok"}
    assert not any(check.advice for check in found.checks)
    assert found.profile
    assert found.works[0] == "profile"
    assert found.first == "nsysflow profile launch_bound"


def test_on_any_machine_what_is_not_ok_says_what_to_do_and_what_is_ok_does_not() -> None:
    for found in map(diagnosed, machines()):
        for check in found.checks:
            assert (check.status == "ok") == (check.advice == ""), check
            assert check.seen


def test_on_any_machine_a_problem_means_that_profiling_does_not_work() -> None:
    for one in machines():
        found = diagnosed(one)
        problems = [check for check in found.checks if check.status == "problem"]
        assert found.profile == (not problems)
        assert found.profile <= (found.works[0] in ("profile", "profile --collector kineto"))
        assert "analyze" in found.works


def test_on_any_machine_what_to_type_first_is_what_works() -> None:
    for one in machines():
        found = diagnosed(one)
        options = found.works[0].removeprefix("profile").strip()
        if found.works == ("analyze",):
            assert found.first == "nsysflow demo"
        else:
            assert found.first.startswith("nsysflow profile")
            assert options in found.first
            assert ("-- python" in found.first) or "torch" in one.packages


def test_without_nsys_a_gpu_can_be_profiled_by_torch_alone() -> None:
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


def test_an_nsys_asked_for_that_is_broken_is_a_problem_although_torch_could_record() -> None:
    assert check("nsys", nsys=BROKEN, trial=None).status == "problem"
    assert check("nsys", nsys=BROKEN, trial=None).advice == "See by hand:\n  nsys --version"


def test_without_a_gpu_the_chain_can_be_tried_on_the_cpu() -> None:
    found = diagnosis(gpus=NO_GPU)
    assert not found.profile
    assert found.works == ("profile --on cpu", "analyze")
    assert found.first == "nsysflow profile launch_bound --on cpu"
    assert check("gpu", gpus=NO_GPU).seen == NO_GPU.problem
    assert not {"cuda", "gpu metrics"} & {check.check for check in found.checks}


def test_the_gpus_are_counted_by_name() -> None:
    assert check("gpu").seen == "2 x NVIDIA H200, driver 580.95, CUDA 13.0"


def test_an_nsys_older_than_the_driver_s_cuda_is_a_problem() -> None:
    found = check("cuda", nsys=OLD)
    assert found.status == "problem"
    assert "12.4" in found.seen
    assert "13.0" in found.seen
    assert "no kernels" in found.seen
    assert diagnosis(nsys=OLD).works[0] == "profile --collector kineto"
    assert check("cuda", nsys=replace(NSYS, cupti=None)).status == "note"


def test_libraries_that_the_importer_lacks_can_be_installed_or_put_into_the_cache() -> None:
    lacks = "its importer lacks libraries"
    seen: dict[str, object] = {"importer": f"{lacks}: libdw.so.1, libelf.so.1", "trial": None}
    found = check("reports", **seen)
    assert found.status == "problem"
    assert found.advice.endswith("\n  sudo apt install libdw1 libelf1")
    assert str(HEALTHY.libraries) in found.advice
    other = check("reports", importer=f"{lacks}: libssh.so", trial=None)
    assert other.advice.endswith(f"\n  mkdir -p {HEALTHY.libraries}")
    assert diagnosis(**seen).works == ("profile --collector kineto", "analyze")


def test_a_trial_that_failed_is_a_problem_that_is_quoted() -> None:
    found = check("reports", trial=Trial(problem="a trial ended with 1; it said: x"))
    assert (found.status, found.seen) == ("problem", "a trial ended with 1; it said: x")


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
def test_the_trial_decides_on_nvtx_and_without_one_what_is_known_of_the_pair(
    nsys: Nsys | CaptureError, version: str, trial: Trial | None, status: str
) -> None:
    assert check("nvtx", nsys=nsys, packages={"nvtx": version}, trial=trial).status == status


def test_an_nvtx_to_install_is_one_that_this_nsys_records() -> None:
    cpu: dict[str, Any] = {"packages": {}, "torch_cuda": None}
    assert "'nvtx<=0.2.11'" in check("nvtx", nsys=OLD, **cpu).advice
    assert check("nvtx", **cpu).advice.endswith("pip install nvtx")


def test_without_nvtx_a_torch_for_cuda_marks_the_ranges() -> None:
    found = check("nvtx", packages={"torch": "2.11.0"}, torch_cuda="13.0")
    assert found.status == "ok"
    assert "torch.cuda.nvtx" in found.seen


def test_a_torch_for_cpus_is_worth_a_note_only_beside_a_gpu() -> None:
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
def test_backtraces_need_samples_of_the_cpu(
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
    assert advice in found.advice


@pytest.mark.parametrize(
    ("admin_only", "capabilities", "status"),
    [(True, (21,), "ok"), (True, (38,), "note"), (False, (), "ok"), (None, (), "note")],
)
def test_gpu_metrics_need_an_administrator_or_a_driver_that_lets_all(
    admin_only: bool | None, capabilities: tuple[int, ...], status: str
) -> None:
    found = check("gpu metrics", admin_only=admin_only, capabilities=frozenset(capabilities))
    assert found.status == status


def test_too_little_room_for_what_nsys_writes_is_worth_a_note() -> None:
    assert check("disk", temp_free_bytes=2_000_000_000).status == "note"
    assert check("disk", temp_free_bytes=4_000_000_000).seen == "4.0 GB free in /home/me/tmp"


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_the_page_keeps_to_its_width_but_for_what_is_to_be_copied(width: int) -> None:
    for one in machines():
        for line in page(diagnosed(one), HOME, width=width):
            copied = line.plain.startswith(" " * 23) or line.plain.startswith(("Works", "Type"))
            assert copied or line.cell_len <= min(width, 100)


def test_the_page_says_last_what_works_and_what_to_type_first() -> None:
    *_, works, first = (line.plain for line in page(diagnosis(), HOME, width=80))
    assert works.startswith("Works here: profile, ")
    assert first == "Type first: nsysflow profile launch_bound"


def test_nothing_shows_the_home_folder() -> None:
    for one in machines():
        found = diagnosed(one)
        shown = [line.plain for line in page(found, HOME, width=80)]
        assert str(HOME) not in "\n".join([*shown, as_json(found, HOME)])


def test_the_document_holds_every_check_and_whether_profiling_works() -> None:
    found = json.loads(as_json(diagnosis(gpus=NO_GPU), HOME))
    assert set(found) == {"checks", "works", "first", "profile"}
    assert found["profile"] is False
    assert {key for check in found["checks"] for key in check} == {
        "check",
        "status",
        "seen",
        "advice",
    }


@pytest.mark.parametrize(("profile", "code"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("argv", [[], ["--json"]])
def test_the_command_ends_with_1_where_profiling_cannot_work(
    argv: list[str], profile: bool, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = HEALTHY if profile else replace(HEALTHY, gpus=NO_GPU)
    monkeypatch.setattr("nsysflow.doctor.look", lambda: seen)
    done = CliRunner().invoke(main, ["doctor", *argv])
    assert done.exit_code == code
    assert "\x1b" not in done.output
    assert not argv or json.loads(done.output)["profile"] is profile


def test_a_machine_s_files_are_read_as_linux_and_the_driver_write_them(tmp_path: Path) -> None:
    status, options = tmp_path / "status", tmp_path / "params"
    status.write_text("Name:\tx\nCapInh:\t0000000000000001\nCapEff:\t0000004000200000\n")
    assert machine._capabilities(status) == {21, 38}
    for line, admin_only in (
        ("RmProfilingAdminOnly: 1", True),
        ("RmProfilingAdminOnly: 0", False),
        ("NVreg_RestrictProfilingToAdminUsers: 0", False),
        ("EnableMSI: 1", None),
    ):
        options.write_text(f"ResmanDebugLevel: 4294967295\n{line}\nMemoryPoolSize: 0\n")
        assert machine._admin_only(options) is admin_only
    (tmp_path / "paranoid").write_text("-1\n")
    assert machine._paranoid(tmp_path / "paranoid") == -1


def test_a_machine_without_those_files_has_nothing_to_tell(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert machine._capabilities(gone) == frozenset()
    assert machine._admin_only(gone) is None
    assert machine._paranoid(gone) is None


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
    found = machine._CUDA_BUILD.search(f"__version__ = '2.13.0'\n{text}\n")
    assert (found[1] if found else None) == cuda


def test_looking_at_this_machine_imports_neither_torch_nor_triton(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr("nsysflow.doctor.machine.find", _no_nsys)
    before = set(sys.modules)
    seen = machine.look()
    assert isinstance(seen.nsys, NsysMissing)
    assert not {"torch", "triton"} & (set(sys.modules) - before)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", seen.python)
    assert seen.temp_free_bytes > 0


def _no_nsys() -> Nsys:
    raise MISSING


def test_a_broken_nsys_is_a_problem_with_what_it_said(tmp_path: Path) -> None:
    broken = script(tmp_path / "nsys", "echo out of order; exit 1")
    with pytest.raises(CaptureError) as caught:
        find(broken, places=places(tmp_path))
    found = check("nsys", nsys=caught.value, trial=None)
    assert "it said: out of order (exit 1)" in found.seen
    assert found.advice == f"See what it says by hand:\n  {broken} --version"
    with pytest.raises(NsysMissing) as missing:
        find(places=places(tmp_path))
    found = check("nsys", nsys=missing.value, trial=None)
    assert found.seen.startswith("no nsys was found")
    assert found.advice.startswith("Install it")


def test_a_found_nsys_is_shown_with_its_version_place_and_origin(tmp_path: Path) -> None:
    program = fake_nsys(tmp_path / "path/nsys", "2025.3.1.90-1v0")
    seen = check("nsys", nsys=find(places=places(tmp_path))).seen
    assert seen == f"2025.3.1.90-1v0 at {program}, on PATH"
