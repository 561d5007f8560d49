"""Modules that compute in each step what they did before: what a look at some steps notes."""

from typing import Any, Final

import pytest

from tests.runtime.programs import ANNOTATED, SMALL, printed, run_profiled

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from nsysflow.runtime.regions import SEEN
from nsysflow.runtime.unchanged import UNCHANGED
class Memory(nn.Module):
    def __init__(self, *more):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), *more)
    def forward(self, audio): return self.net(audio)
class Decoder(nn.Module):
    def __init__(self, memory=None):
        super().__init__()
        self.key, self.value, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.memory = memory
    def project(self, audio):
        return self.memory(audio) if self.memory else self.key(audio) + self.value(audio)
    def forward(self, x, audio):
        return self.out(x) + self.project(audio).sum()
new = lambda: torch.randn(2, 4)
def generates(call, steps=30, mode=torch.no_grad):
    with mode():
        audio = torch.randn(50, 4)
        for i in range(steps): call(audio)
def written(audio): model(new(), audio.add_(1))
def reweighted(audio):
    for p in model.parameters(): p.add_(1)
    model(new(), audio)
def within(audio):
    model(new(), audio)
    audio.add_(1)
model = Decoder()
"""

LAYERS: Final = ["Linear", "Decoder", "forward", 40, 60, 2, 2, 1_600, 1_632]
"""Two layers with 50 of 52 rows of a step each, and 20 weights of 60; each in one call."""

ROWS: Final = "generates(lambda audio: model(new(), audio))"

PROGRAMS: Final[dict[str, tuple[str, list[Any]]]] = {
    "layers": (ROWS, [LAYERS]),
    "inference mode": (ROWS.replace(")))", ")), mode=torch.inference_mode)"), [LAYERS]),
    "a module of layers": (
        "model = Decoder(Memory())\n" + ROWS,
        [["Memory", "Decoder", "forward", 20, 80, 2, 1, 800, 832]],
    ),
    "beside another model": (
        "generates(lambda audio: (model.key(audio), net(new())))",
        [["Linear", "Linear", "forward", 20, 96, 2, 1, 800, 800 + 2 * 64]],
    ),
    "convolutions": (
        "model.key = model.value = nn.Conv1d(50, 4, 1)\n" + ROWS,
        [["Conv1d", "Decoder", "forward", 204, 224, 2, 2, 2 * 4 * 200, 2 * 4 * 200 + 32]],
    ),
    "the whole input": ("x = new()\ngenerates(lambda audio: model(x, audio))", []),
    "with gradients": ("generates(lambda audio: model(new(), audio), mode=torch.enable_grad)", []),
    "a new tensor": ("generates(lambda audio: model(new(), audio + 1))", []),
    "written to": ("generates(written)", []),
    "written to behind the call": ("generates(within)", []),
    "written to in inference mode": ("generates(written, mode=torch.inference_mode)", []),
    "written to by another library": (
        "def behind(audio):\n    audio.numpy()[:] += 1\n    model(new(), audio)\ngenerates(behind)",
        [],
    ),
    "other weights": ("generates(reweighted)", []),
    "dropout": ("model = Decoder(Memory(nn.Dropout(0.5)))\n" + ROWS, []),
    "a few steps": (ROWS.replace("))", "), steps=4)"), []),
}


def noted_of(program: str) -> Any:
    return printed(f"{BEGIN}{program}\nassert UNCHANGED._torch", "SEEN['unchanged_calls']")


@pytest.mark.parametrize("name", PROGRAMS)
def test_modules_that_compute_the_same_in_each_step_are_noted(name: str) -> None:
    program, noted = PROGRAMS[name]
    assert [[*row[:3], *row[4:-1]] for row in noted_of(program)] == noted


def test_the_lines_that_call_them_are_noted() -> None:
    ((*_, lines),) = noted_of(ROWS)
    source = (ANNOTATED + SMALL + BEGIN + ROWS).splitlines()
    (number,) = {int(line.rpartition(":")[2]) for line in lines}
    assert "return self.memory(audio) if" in source[number - 1]


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    program = f"UNCHANGED._compared = None\n{ROWS}\nassert UNCHANGED._torch is None"
    done = run_profiled(ANNOTATED + SMALL + BEGIN + program)
    assert done.returncode == 0, done.stderr
