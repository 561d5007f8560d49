"""What works on a machine, and what to type first."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from nsysflow.cli.main import main
from nsysflow.doctor import diagnose
from tests.doctor.machines import (
    HEALTHY,
    MISSING,
    NO_GPU,
    check,
    diagnosis,
    machines,
)


def test_on_a_healthy_machine_there_is_nothing_to_do() -> None:
    found = diagnosis()
    assert {check.status for check in found.checks} == {"ok"}
    assert not any(check.advice or check.command for check in found.checks)
    assert found.profile
    assert found.works[0] == "profile"
    assert found.first == "nsysflow profile launch_bound"


def test_on_any_machine_a_problem_means_that_profiling_does_not_work() -> None:
    for one in machines():
        found = diagnose(one)
        problems = [check for check in found.checks if check.status == "problem"]
        assert found.profile == (not problems)
        assert found.profile <= (found.works[0] in ("profile", "profile --collector kineto"))
        assert "analyze" in found.works


def test_on_any_machine_the_first_command_is_one_that_works() -> None:
    for one in machines():
        found = diagnose(one)
        options = found.works[0].removeprefix("profile").strip()
        if found.works == ("analyze",):
            assert found.first == "nsysflow demo"
        else:
            assert found.first.startswith("nsysflow profile")
            assert options in found.first
            assert ("-- python" in found.first) or "torch" in one.packages


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
    monkeypatch.setattr("nsysflow.doctor.look", lambda: seen)
    done = CliRunner().invoke(main, ["doctor", *argv])
    assert done.exit_code == code
    assert "\x1b" not in done.output
    assert not argv or json.loads(done.output)["profile"] is profile
