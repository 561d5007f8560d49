"""What lies in which automatic range, and where steps begin and end."""

from pathlib import Path

import pytest

from tests.runtime.auto.programs import ranges_of

SGD = "opt = torch.optim.SGD(net.parameters(), 0.1)\n"


def test_a_step_has_all_batches_that_one_optimizer_step_takes(tmp_path: Path) -> None:
    program = """
loader = torch.utils.data.DataLoader(torch.randn(4, 2, 4))
opt = torch.optim.SGD(net.parameters(), 0.1)
loss_fn = nn.MSELoss()
for i, batch in enumerate(loader):
    loss_fn(net(batch[0]), batch[0]).backward()
    if i % 2:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
"""
    batch = "data forward MSELoss backward "
    end = "clip_grad optimizer step zero_grad "
    assert ranges_of(program, tmp_path) == "step " + 2 * (2 * batch + end) + "data"


def test_of_two_optimizers_the_one_that_stepped_first_ends_steps(tmp_path: Path) -> None:
    program = """
other = nn.Linear(4, 4)
late, early = (torch.optim.SGD(m.parameters(), 0.1) for m in (other, net))
for _ in range(2):
    net(x).sum().backward(); early.step()
    other(x).sum().backward(); late.step()
"""
    both = "forward backward optimizer step forward backward optimizer"
    assert ranges_of(program, tmp_path) == f"step {both} {both}"


def test_a_closure_is_not_in_the_optimizer(tmp_path: Path) -> None:
    program = """
opt = torch.optim.LBFGS(net.parameters(), max_iter=2)
def closure():
    opt.zero_grad()
    loss = net(x).square().sum()
    loss.backward()
    return loss
opt.step(closure)
opt.step(closure=closure)
"""
    step = "optimizer zero_grad forward backward " * 2 + "optimizer step"
    assert ranges_of(program, tmp_path) == f"step {step} {step}"


def test_without_an_optimizer_each_call_of_the_model_is_a_step(tmp_path: Path) -> None:
    assert ranges_of("for _ in range(3): net(x)", tmp_path) == "call" + 3 * " forward call"


def test_of_models_that_take_turns_the_first_makes_the_steps(tmp_path: Path) -> None:
    program = "other = nn.Linear(4, 4)\nfor _ in range(2): other(net(x))"
    assert ranges_of(program, tmp_path) == "call" + 2 * " forward call forward"


def test_a_model_called_before_there_is_an_optimizer_leaves_the_first_step_whole(
    tmp_path: Path,
) -> None:
    program = f"net(x)\n{SGD}net(x).sum().backward()\nopt.step()"
    ranges = "call forward call step forward backward optimizer step"
    assert ranges_of(program, tmp_path) == ranges


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("nn.CrossEntropyLoss()(net(x), x)", "CrossEntropyLoss"),
        ("nn.Softmax(-1)(net(x))", "Softmax"),
        ("type('DiceLoss', (nn.Linear,), {})(4, 4)(net(x))", "DiceLoss"),
        ("type('Mine', (nn.MSELoss,), {})()(net(x), x)", "Mine"),
        ("nn.Linear(4, 4)(net(x))", "forward"),
    ],
)
def test_a_module_that_is_no_model_keeps_the_name_of_its_class(
    tmp_path: Path, called: str, name: str
) -> None:
    assert ranges_of(called, tmp_path) == f"call forward call {name}"


def test_a_model_that_is_judged_after_training_began_is_in_eval(tmp_path: Path) -> None:
    program = f"{SGD}net.eval()(x)\nopt.step()\nnet(x)\nnet.train()(x)"
    assert ranges_of(program, tmp_path) == "step forward optimizer step eval forward"


def test_modules_called_while_a_batch_is_fetched_are_data(tmp_path: Path) -> None:
    program = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, i): return net(x)
list(torch.utils.data.DataLoader(Rows()))
"""
    assert ranges_of(program, tmp_path) == "data data"


def test_worker_processes_of_a_loader_record_nothing(tmp_path: Path) -> None:
    program = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, i):
        net(x)
        return len(tree.top)
print(*torch.utils.data.DataLoader(Rows(), num_workers=1))
"""
    assert ranges_of(program, tmp_path) == "data data"


@pytest.mark.parametrize(
    "run",
    [
        "torch.autograd.grad(net(x).sum(), net.parameters())",
        "torch.autograd.backward(net(x).sum())",
        "net(x).sum().backward()",
    ],
)
def test_every_run_of_the_engine_is_backward(tmp_path: Path, run: str) -> None:
    assert ranges_of(run, tmp_path) == "call forward call backward"


def test_a_run_inside_a_run_of_the_engine_is_the_same_backward(tmp_path: Path) -> None:
    program = """
from torch.utils.checkpoint import checkpoint
checkpoint(net, x.requires_grad_(), use_reentrant=True).sum().backward()
"""
    assert ranges_of(program, tmp_path) == "call forward call backward(forward call)"


def test_saving_is_a_phase(tmp_path: Path) -> None:
    assert ranges_of("torch.save(net.state_dict(), 'net.pt')", tmp_path) == "save"


def test_each_call_of_the_model_in_generate_is_a_token(tmp_path: Path) -> None:
    program = """
import pathlib, sys
package = pathlib.Path("transformers/generation")
package.mkdir(parents=True)
(package / "utils.py").write_text('''
class GenerationMixin:
    def generate(self, x):
        for _ in range(2): self(x)
        return "text"
''')
for each in (package, package.parent):
    (each / "__init__.py").touch()
sys.path.insert(0, ".")
from transformers.generation.utils import GenerationMixin
class Model(GenerationMixin, nn.Linear): pass
assert Model(4, 4).generate(x) == "text"
"""
    tokens = "generate(call token(forward call) token(forward call))"
    assert ranges_of(program, tmp_path) == tokens


def test_the_step_of_a_deepspeed_engine_is_the_optimizer(tmp_path: Path) -> None:
    program = """
import pathlib, sys
package = pathlib.Path("deepspeed/runtime")
package.mkdir(parents=True)
(package / "engine.py").write_text("class DeepSpeedEngine:\\n    def step(self): return 7")
sys.path.insert(0, ".")
from deepspeed.runtime.engine import DeepSpeedEngine
assert DeepSpeedEngine().step() == 7
"""
    assert ranges_of(program, tmp_path) == "optimizer"


def test_a_framework_that_lacks_a_function_is_left_alone(tmp_path: Path) -> None:
    program = """
import pathlib, sys
pathlib.Path("accelerate").mkdir()
pathlib.Path("accelerate/data_loader.py").write_text("")
sys.path.insert(0, ".")
import accelerate.data_loader
"""
    assert ranges_of(program, tmp_path) == ""


def test_a_program_that_marks_its_steps_has_no_others(tmp_path: Path) -> None:
    program = f"""
from nsysflow import steps
{SGD}
for _ in steps([0, 1]):
    net(x).sum().backward()
    opt.step()
"""
    step = "forward backward optimizer"
    assert ranges_of(program, tmp_path) == f"{step} {step}"


def test_a_range_that_an_exception_leaves_is_closed(tmp_path: Path) -> None:
    program = """
for _ in range(2):
    try: net("text")
    except TypeError: pass
"""
    assert ranges_of(program, tmp_path) == "call forward forward"
