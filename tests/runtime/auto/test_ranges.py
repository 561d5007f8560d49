"""What lies in which automatic range; a program does the same with them as without them, and
torch.compile makes the same graphs. In a plain run and after a recording, steps are counted without
ranges."""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from nsysflow.runs.manifest import take_statuses
from nsysflow.runtime.protocol import CAPTURE, COLLECTOR, LOOK, PLAIN
from tests.runtime.programs import (
    ANNOTATED,
    SMALL,
    ended,
    environment,
    ranges_of,
    run,
    run_profiled,
    run_torch,
    statuses_of,
    tree_of,
)

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

MODULE: Final = """
def module(name, text):
    import pathlib, sys
    file = pathlib.Path(name)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    for package in (*file.parents,)[:-1]: (package / "__init__.py").touch()
    sys.path.insert(0, ".")
"""
"""Installs a module of a framework."""

SGD: Final = "opt = torch.optim.SGD(net.parameters(), 0.1)\n"
ROWS: Final = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 1
    def __getitem__(self, i): return net(x).shape[0] * len({top})
print(*torch.utils.data.DataLoader(Rows(), num_workers={workers}))
"""
BATCH: Final = "data forward MSELoss backward "
BATCHES_END: Final = "clip_grad optimizer step zero_grad "
TRAINED: Final = "forward backward optimizer"
CLOSURE: Final = "optimizer zero_grad forward backward optimizer zero_grad forward backward"

RANGES: Final = {
    "a step has all batches that one optimizer step takes": (
        f"""
loader = torch.utils.data.DataLoader(torch.randn(4, 2, 4))
{SGD}
loss_fn = nn.MSELoss()
for i, batch in enumerate(loader):
    loss_fn(net(batch[0]), batch[0]).backward()
    if i % 2:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
""",
        "step " + 2 * (2 * BATCH + BATCHES_END) + "data",
    ),
    "of two optimizers the one that stepped first ends steps": (
        """
other = nn.Linear(4, 4)
late, early = (torch.optim.SGD(m.parameters(), 0.1) for m in (other, net))
for _ in range(2):
    net(x).sum().backward(); early.step()
    other(x).sum().backward(); late.step()
""",
        f"step {TRAINED} step {TRAINED} {TRAINED} step {TRAINED}",
    ),
    "a closure is not in the optimizer": (
        """
opt = torch.optim.LBFGS(net.parameters(), max_iter=2)
def closure():
    opt.zero_grad()
    loss = net(x).square().sum()
    loss.backward()
    return loss
opt.step(closure)
opt.step(closure=closure)
""",
        f"step {CLOSURE} optimizer step {CLOSURE} optimizer step",
    ),
    "without an optimizer each call of the model is a step": (
        "for _ in range(3): net(x)",
        "call" + 3 * " forward call",
    ),
    "of a program that changes the weights itself, what is judged is no step": (
        """
for _ in range(2):
    net(x).sum().backward()
    net.eval()(x)
    net.train()
""",
        "call" + 2 * " forward call backward eval",
    ),
    "a model in evaluation whose inputs get gradients makes steps": (
        "y = x.clone().requires_grad_()\nfor _ in range(2): net.eval()(y).sum().backward()",
        "call" + 2 * " forward call backward",
    ),
    "of models that take turns the first makes the steps": (
        "other = nn.Linear(4, 4)\nfor _ in range(2): other(net(x))",
        "call" + 2 * " forward call forward",
    ),
    "a model called before there is an optimizer leaves the first step whole": (
        f"net(x)\n{SGD}net(x).sum().backward()\nopt.step()",
        f"call forward call step {TRAINED} step",
    ),
    "losses and modules without weights have the names of their classes": (
        """
for last in (
    nn.CrossEntropyLoss(),
    type("DiceLoss", (nn.Linear,), {})(4, 4),
    type("Mine", (nn.MSELoss,), {})(),
    type("RandomTransform2d", (nn.Linear,), {})(4, 4),
    type("Transformer", (nn.Linear,), {})(4, 4),
    nn.Softmax(-1),
    nn.Linear(4, 4),
):
    takes_two = isinstance(last, nn.modules.loss._Loss)
    last(net(x), x) if takes_two else last(net(x))
""",
        "call forward call CrossEntropyLoss forward call DiceLoss forward call Mine"
        " forward call RandomTransform2d forward call forward forward call Softmax forward call"
        " forward",
    ),
    "a model that is judged after training began is in eval": (
        f"{SGD}net.eval()(x)\nopt.step()\nnet(x)\nnet.train()(x)",
        "step forward optimizer step eval forward",
    ),
    "a model that is judged before training, without gradients, is in eval": (
        f"{SGD}with torch.no_grad(): net(x); net.eval()(x); net.train()\nopt.step()",
        "step forward eval optimizer step",
    ),
    "modules called for a batch are data": (ROWS.format(top="[]", workers=0), "data data"),
    "workers of a loader record nothing": (ROWS.format(top="tree.top", workers=1), "data data"),
    "each way to run the engine is a backward": (
        """
torch.autograd.grad(net(x).sum(), net.parameters())
torch.autograd.backward(net(x).sum())
net(x).sum().backward()
""",
        "call" + 3 * " forward call backward",
    ),
    "a run inside a run of the engine is the same backward": (
        """
from torch.utils.checkpoint import checkpoint
checkpoint(net, x.requires_grad_(), use_reentrant=True).sum().backward()
""",
        "call forward call backward(forward call)",
    ),
    "saving is a phase": ("torch.save(net.state_dict(), 'net.pt')", "save"),
    "each call of the model in generate is a token": (
        """
module("transformers/generation/utils.py", '''
class GenerationMixin:
    def generate(self, x):
        for _ in range(2): self(x)
        return "text"
''')
from transformers.generation.utils import GenerationMixin
class Model(GenerationMixin, nn.Linear): pass
assert Model(4, 4).generate(x) == "text"
""",
        "generate(call token[prefill bs=2 tok=8](forward call)"
        " token[decode bs=2 tok=8](forward call))",
    ),
    "the step of a DeepSpeed engine is the optimizer": (
        """
module("deepspeed/runtime/engine.py", "class DeepSpeedEngine:\\n    def step(self): return 7")
from deepspeed.runtime.engine import DeepSpeedEngine
assert DeepSpeedEngine().step() == 7
""",
        "optimizer",
    ),
    "a framework that lacks a function is left alone": (
        'module("accelerate/data_loader.py", ""); import accelerate.data_loader',
        "",
    ),
    "a program that marks its steps has no others": (
        f"""
from nsysflow import steps
{SGD}
for _ in steps([0, 1]):
    net(x).sum().backward()
    opt.step()
""",
        f"{TRAINED} {TRAINED}",
    ),
    "a range that an exception leaves is closed": (
        """
for _ in range(2):
    try: net("text")
    except TypeError: pass
""",
        "call forward forward",
    ),
}


@pytest.mark.parametrize(("program", "ranges"), RANGES.values(), ids=RANGES)
def test_a_program_has_these_ranges(program: str, ranges: str) -> None:
    assert ranges_of(MODULE + program) == ranges


def test_steps_in_which_calls_are_watched_say_so() -> None:
    """Two of them, and two later on."""
    tree = tree_of("with torch.no_grad():\n    for _ in range(16): net(torch.randn(2, 4))")
    names = [name for name, _ in tree if name in ("call", LOOK)]
    before_looks = [at for at, name in enumerate(names) if name == LOOK]
    calls = [names[:at].count("call") - 1 for at in before_looks]
    assert calls == [2, 3, 10, 11]


WINDOW: Final = """
from nsysflow.runtime import steps as window
class Capture:
    def start(self, about): tree.open("START", None)(); print(json.dumps(about))
    def stop(self): tree.open("STOP", None)()
window.new_capture = lambda collector: Capture()
"""

TIMED: Final = "import time\nfor _ in range(6)"
TRAINS: Final = f"{SGD}for _ in range(6): net(x).sum().backward(); opt.step()"


@pytest.mark.parametrize(
    ("program", "inside", "border"),
    [(TRAINS, TRAINED, "step"), (f"{TIMED}: net(x); time.sleep(0.02)", "forward", "call")],
)
def test_the_window_has_the_steps_asked_for(program: str, inside: str, border: str) -> None:
    done = run_profiled(ANNOTATED + WINDOW + SMALL + program, **{CAPTURE: "1:2:2"})
    names = [name for name, _ in json.loads(done.stdout.partition("RANGES ")[2])]
    first, last = names.index("START"), names.index("STOP")
    captured = " ".join(names[first + 1 : last])
    assert captured == f"{border} {inside} {border} {inside} {border}"
    assert names[:first].count(border) == 1 + 1 + 2  # where the first begins, and behind each
    about = json.loads(done.stdout.splitlines()[0])
    assert about["capture"] == "1:2:2"
    assert about["unprofiled_step_ns"] > (20_000_000 if "sleep" in program else 0)


STEPS: Final = """
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

COPIES: Final = """
import copy, io, pickle
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for again in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
    net, opt = again((net, opt))
    net(x).sum().backward(); opt.step()
file = io.BytesIO()
torch.save([net, opt.state_dict()], file)
print(opt, list(net.state_dict()), sorted(vars(net)), sorted(vars(opt)), len(file.getvalue()))
"""

HOOKS: Final = """
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


@pytest.mark.parametrize("program", [STEPS, COPIES, HOOKS])
def test_results_are_equal_to_the_bit(program: str) -> None:
    (without, warned), (annotated, warned_too) = (
        (done.stdout, done.stderr)
        for prelude in ("import torch\n", ANNOTATED)
        for done in [run_profiled(prelude + SMALL + program)]
    )
    assert (annotated.partition("RANGES")[0], warned_too) == (without, warned)
    assert without


def test_without_a_profiler_nothing_of_torch_is_replaced() -> None:
    program = """
import torch
from nsysflow.runtime.auto import annotate
call, step = torch.nn.Module.__call__, torch.optim.Optimizer.profile_hook_step
annotate(torch)
print(call is torch.nn.Module.__call__, step is torch.optim.Optimizer.profile_hook_step)
"""
    assert run_profiled(program, NSYSFLOW_COLLECTOR="").stdout == "True True\n"


BEFORE = """
import torch
call, zero = torch.nn.Module.__call__, torch.optim.Optimizer.zero_grad
from nsysflow.runtime.auto import annotate
annotate(torch)
"""
TRAINING = """
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


@pytest.mark.parametrize(("program", "steps", "evaluations"), [(TRAINING, 5, 1), (INFERS, 4, 0)])
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
    for variables in ({PLAIN: "1"}, {}):
        assert run(code, tmp_path, **variables).stdout == "a b c 1\n"
    assert statuses_of(code, tmp_path, **{PLAIN: "1"})[0].steps == 4


WAYS = {
    "function": "torch.compile(lambda x: net(x), backend=backend, fullgraph=True), opt.step",
    "in place": "[net.compile(backend=backend), net][1], opt.step",
    "function with step": "net, torch.compile(lambda: opt.step(), backend=backend)",
    "hooks": "torch.compile(hooked(net), backend=backend), opt.step",
}
"""How programs compile: what is called in place of the model, and of the optimizer's step."""

COMPILED = """
import json, torch
from torch import nn
from torch._dynamo.utils import counters
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))
def hooked(net):
    net.register_forward_hook(lambda module, args, out: out * 1)
    return net
backend = "aot_eager"
def graphs(make):
    global net, opt
    torch._dynamo.reset(); counters.clear(); torch.manual_seed(0)
    net = nn.Sequential(Block(), Block())
    opt = torch.optim.SGD(net.parameters(), 0.1)
    model, step = eval(make)
    for _ in range(3):
        loss = model(torch.randn(2, 4)).square().mean()
        loss.backward(); step(); opt.zero_grad()
    counted = {key: dict(counters[key]) for key in ("stats", "graph_break", "recompiles", "frames")}
    return loss.item(), counted
"""


def run_file(code: str, folder: Path) -> str:
    """What a program prints that is a file, as Dynamo wants it."""
    file = folder / "program.py"
    file.write_text(code)
    done = ended([sys.executable, str(file)], folder, environment(folder, {COLLECTOR: "nsys"}))
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def graphs(folder: Path, prelude: str) -> dict[str, Any]:
    """Per way, the loss and what Dynamo counted."""
    counted = f"{{way: graphs(make) for way, make in {WAYS}.items()}}"
    said = run_file(f"{prelude}{COMPILED}\nprint(json.dumps({counted}))", folder)
    found: dict[str, Any] = json.loads(said.partition("RANGES")[0])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_graphs_breaks_recompiles_and_results_are_the_same(folder: Path, way: str) -> None:
    annotated, plain = graphs(folder, ANNOTATED)[way], graphs(folder, "")[way]
    assert annotated == plain
    assert plain[1]["stats"]["unique_graphs"] > 0


@pytest.mark.long
def test_compiling_is_a_phase_and_its_own_runs_of_the_engine_are_none(folder: Path) -> None:
    program = """
import torch
net = torch.nn.Linear(4, 4)
model = torch.compile(net, backend="aot_eager")
torch._dynamo.reset()
for _ in range(2): model(torch.randn(2, 4)).sum().backward()
"""
    tree = json.loads(run_file(ANNOTATED + program, folder).partition("RANGES ")[2])
    phases = [(name, inside) for name, inside in tree if name not in ("call", LOOK)]
    assert [(name, {inner for inner, _ in inside}) for name, inside in phases] == [
        ("forward", {"compile"}),
        ("backward", {"compile"}),
        ("forward", set()),
        ("backward", set()),
    ]


@pytest.mark.long
def test_what_torch_gives_up_on_is_noted(folder: Path) -> None:
    program = """
from nsysflow.runtime.regions import GAVE_UP
class Clock(torch.nn.Module):
    time = 0
    def forward(self, x):
        return x * self.time
net = Clock()
model = torch.compile(net, backend="eager")
for net.time in range(1, 12): model(torch.randn(2, 4))
print(json.dumps(GAVE_UP))
"""
    said = run_file(ANNOTATED + program, folder).partition("RANGES ")[0]
    ((function, place, guard),) = json.loads(said)
    assert (function, place.partition(":")[0]) == ("forward", "program.py")
    assert "time" in guard


CALLED: Final = "for _ in range(6): opt.zero_grad(); {}.sum().backward(); opt.step()"


@pytest.mark.long
@pytest.mark.parametrize(
    ("asked", "called", "noted"),
    [
        ("net.compile(backend='eager')", "net.forward(x)", True),
        ("torch.compile(net, backend='eager')", "net(x)", True),
        ("net.compile(backend='eager')", "net(x)", False),
        ("net = torch.compile(net, backend='eager', disable=True)", "net(x)", False),
    ],
)
def test_what_never_runs_compiled_is_noted_once(
    asked: str, called: str, noted: bool, folder: Path
) -> None:
    program = f"""
from nsysflow.runtime.regions import GAVE_UP
class Net(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x).tanh()
net, x = Net(4, 4), torch.randn(2, 4)
opt = torch.optim.SGD(net.parameters(), 0.1)
{asked}  # HERE
{CALLED.format(called)}
print(json.dumps(GAVE_UP))
"""
    said = run_file(ANNOTATED + program, folder).partition("RANGES ")[0]
    lines = (ANNOTATED + program).splitlines()
    here = 1 + next(at for at, line in enumerate(lines) if "# HERE" in line)
    assert json.loads(said) == ([["", f"program.py:{here}", ""]] if noted else [])
