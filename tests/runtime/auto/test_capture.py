"""The capture window opens and closes at automatic steps."""

import json
from pathlib import Path

import pytest

from nsysflow.runtime.protocol import CAPTURE
from tests.runtime.auto.programs import ANNOTATED, SMALL, run

WINDOW = """
from nsysflow.runtime import steps as window
class Capture:
    def start(self, about): tree.open("START", None)(); print(json.dumps(about))
    def stop(self): tree.open("STOP", None)()
window.new_capture = lambda collector: Capture()
"""

TRAINS = """
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(6):
    net(x).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("program", "inside", "border"),
    [
        (TRAINS, "forward backward optimizer", "step"),
        ("for _ in range(6): net(x)", "forward", "call"),
    ],
)
def test_the_window_has_the_steps_that_were_asked_for(
    tmp_path: Path, program: str, inside: str, border: str
) -> None:
    done = run(ANNOTATED + WINDOW + SMALL + program, tmp_path, **{CAPTURE: "1:2:2"})
    names = [name for name, _ in json.loads(done.stdout.partition("RANGES ")[2])]
    first, last = names.index("START"), names.index("STOP")
    captured = " ".join(names[first + 1 : last])
    assert captured == f"{border} {inside} {border} {inside} {border}"
    assert names[:first].count(border) == 1 + 1 + 2  # where the first begins, and behind each
    assert json.loads(done.stdout.splitlines()[0])["capture"] == "1:2:2"


def test_the_steps_before_the_window_are_timed(tmp_path: Path) -> None:
    program = "import time\nfor _ in range(6): net(x); time.sleep(0.02)"
    done = run(ANNOTATED + WINDOW + SMALL + program, tmp_path, **{CAPTURE: "1:2:2"})
    assert json.loads(done.stdout.splitlines()[0])["unprofiled_step_ns"] > 20_000_000
