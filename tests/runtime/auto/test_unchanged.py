"""A program does the same with automatic ranges as without them."""

from pathlib import Path

import pytest

from tests.runtime.auto.programs import ANNOTATED, SMALL, run

TRAINS = """
opt = torch.optim.AdamW(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.StepLR(opt, 1)
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    loss = nn.functional.dropout(net(x), 0.5).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt); scaler.update(); schedule.step(); opt.zero_grad()
print([p.tolist() for p in net.parameters()], torch.get_rng_state().sum().item())
"""

COPIES = """
import copy, io, pickle
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for again in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
    net, opt = again((net, opt))
    net(x).sum().backward(); opt.step()
file = io.BytesIO()
torch.save([net, opt.state_dict()], file)
print(opt, list(net.state_dict()), sorted(vars(net)), sorted(vars(opt)), len(file.getvalue()))
"""

HOOKS = """
opt = torch.optim.SGD(net.parameters(), 0.1)
opt.register_step_pre_hook(lambda *_: print("before"))
opt.register_step_post_hook(lambda *_: print("after"))
class Twice(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        return super().step(closure)
twice = Twice(net.parameters(), 0.1)
for each in (opt, twice):
    net(x).sum().backward()
    print(each.step(lambda: 7))
net.register_forward_hook(lambda *_: print("called"))
print(net(x), torch.jit.trace(net, x)(x), torch.jit.script(net[0])(x))
print(torch.fx.symbolic_trace(nn.Sequential(*net)).code)
try: net(1, 2)
except TypeError as error: print(error)
"""


@pytest.mark.parametrize("program", [TRAINS, COPIES, HOOKS])
def test_results_are_equal_to_the_bit(tmp_path: Path, program: str) -> None:
    (without, warned), (annotated, warned_too) = (
        (done.stdout, done.stderr)
        for prelude in ("import torch\n", ANNOTATED)
        for done in [run(prelude + SMALL + program, tmp_path)]
    )
    assert (annotated.partition("RANGES")[0], warned_too) == (without, warned)
    assert without


def test_without_a_profiler_nothing_of_torch_is_replaced(tmp_path: Path) -> None:
    program = """
import torch
from nsysflow.runtime.auto import annotate
call, step = torch.nn.Module.__call__, torch.optim.Optimizer.profile_hook_step
annotate(torch)
print(call is torch.nn.Module.__call__, step is torch.optim.Optimizer.profile_hook_step)
"""
    assert run(program, tmp_path, NSYSFLOW_COLLECTOR="").stdout == "True True\n"
