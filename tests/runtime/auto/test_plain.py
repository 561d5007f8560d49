"""Steps of a program are counted, and no range is opened, in a plain run and after a recording."""

from pathlib import Path

import pytest

from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.protocol import PLAIN
from tests.runtime.auto.programs import SMALL, ranges_of
from tests.runtime.programs import run, run_torch, statuses_of

pytestmark = pytest.mark.xdist_group("torch")

BEFORE = """
import torch
call, zero = torch.nn.Module.__call__, torch.optim.Optimizer.zero_grad
from nsysflow.runtime.auto import annotate
annotate(torch)
"""
TRAINS = """
opt = torch.optim.SGD(net.parameters(), 0.1)
net.eval(); net.train()
for number in range(5):
    opt.zero_grad(); net(x).sum().backward(); opt.step()
    if number == 2: net.eval(); net(x); net.train()
assert torch.nn.Module.__call__ is call
"""
INFERS = """
for _ in range(4): net(x)
"""
CHECKS = "assert torch.optim.Optimizer.zero_grad is zero\n"


@pytest.mark.parametrize(("program", "steps", "evaluations"), [(TRAINS, 5, 1), (INFERS, 4, 0)])
def test_pytorch_steps_are_counted_without_ranges(
    tmp_path: Path, program: str, steps: int, evaluations: int
) -> None:
    ran = run_torch(BEFORE + SMALL + program + CHECKS, tmp_path, **{PLAIN: "1"})
    assert ran.returncode == 0, ran.stderr
    (status,) = take_statuses(tmp_path)
    assert (status.steps, status.ranges, status.evaluations) == (steps, 0, evaluations)


@pytest.mark.parametrize(
    ("makes", "step", "ranges"),
    [
        (
            "opt = torch.optim.SGD(net.parameters(), 0.1)",
            "net(x).sum().backward(); opt.step()",
            "step " + 2 * "forward backward optimizer step ",
        ),
        ("", "net(x)", "call forward call forward call"),
    ],
)
def test_steps_are_counted_after_the_recording(makes: str, step: str, ranges: str) -> None:
    program = f"""
{makes}
from nsysflow.runtime.process import THIS_PROCESS
for number in range(5):
    THIS_PROCESS.recorded = number >= 2
    {step}
assert THIS_PROCESS.steps == 5
"""
    assert ranges_of(program) == ranges.strip()


def test_a_loop_gives_the_same_batches_as_without_us(tmp_path: Path) -> None:
    code = "from nsysflow import steps; print(*steps(iter('abc')), next(steps([1])))"
    assert run(code, tmp_path, **{PLAIN: "1"}).stdout == run(code, tmp_path).stdout == "a b c 1\n"
    assert statuses_of(code, tmp_path, **{PLAIN: "1"})[0].steps == 4
