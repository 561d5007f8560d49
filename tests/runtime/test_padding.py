"""Padding in what models are given: what a look at some steps notes."""

from typing import Any, Final

import pytest

from tests.runtime.programs import ANNOTATED, SMALL, printed, run_profiled

pytestmark = pytest.mark.xdist_group("torch")  # a process with torch is forked for all of them

BEGIN: Final = """
from nsysflow.runtime.padding import PADDING
from nsysflow.runtime.regions import SEEN
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.out = nn.Embedding(50, 8), nn.Linear(8, 1)
    def forward(self, given=None, *others, input_ids=None, **named):
        while isinstance(given, (dict, list)):
            given = given["ids"] if isinstance(given, dict) else given[0]
        return self.out(self.tok(input_ids if given is None else given)).mean()
model = Model()
lengths = [16, 8, 8, 4], [32, 8, 16, 4]
def rows(lengths, width=0, pad=0, left=False):
    ids = torch.full((len(lengths), width or max(lengths)), pad)
    for row, n in zip(ids, lengths):
        (row[len(row) - n:] if left else row[:n]).copy_(torch.arange(n) + 10)
    return ids
def batch(i, **kw): return rows(lengths[i % 2], **kw)
def serves(give, steps=30):
    for i in range(steps): give(i)
def trains(give):
    opt = torch.optim.SGD(model.parameters(), 0.01)
    for i in range(30):
        opt.zero_grad(); give(i).backward(); opt.step()
"""

COUNTS: Final = [8, 768, 384, 0, 0, 20_480, 7_040]
"""Of eight calls, by turns with a batch of each: the calls, the positions, those of padding, those
behind the longest row, those of batches of like length, and pairs."""

PROGRAMS: Final[dict[str, tuple[str, list[Any]]]] = {
    "it serves": ("serves(lambda i: model(batch(i)))", [COUNTS]),
    "it trains": ("trains(lambda i: model(batch(i)))", [COUNTS]),
    "by name": ("serves(lambda i: model(mask=batch(i) * 0, input_ids=batch(i)))", [COUNTS]),
    "in a dict in a list": ("serves(lambda i: model([{'a': 1, 'ids': batch(i)}]))", [COUNTS]),
    "at the beginning of rows": ("serves(lambda i: model(batch(i, left=True)))", [COUNTS]),
    "another value": ("serves(lambda i: model(batch(i, pad=3).int()))", [COUNTS]),
    "behind a mask": (
        "serves(lambda i: model(None, batch(i) // 40, input_ids=batch(i)))",
        [COUNTS],
    ),
    "several calls a step": (
        "trains(lambda i: sum(model(batch(i)) for _ in range(4)))",
        [[16, *(2 * count for count in COUNTS[1:])]],
    ),
    "to a fixed length": (
        "serves(lambda i: model(batch(i, width=64)))",
        [[8, 2_048, 1_664, 1_280, 0, 131_072, 7_040]],
    ),
    "compiled": (
        "net = torch.compile(model, backend='eager'); serves(lambda i: net(batch(i)))",
        [COUNTS],
    ),
    "inference mode": ("with torch.inference_mode(): serves(lambda i: model(batch(i)))", [COUNTS]),
    "no padding": ("serves(lambda i: model(rows([32, 32])))", []),
    "hardly any": ("serves(lambda i: model(rows([32, 30])))", []),
    "all rows are one value": ("serves(lambda i: model(torch.full((4, 32), 7)))", []),
    "masks": ("serves(lambda i: model((batch(i) > 0).long()))", []),
    "short rows": ("serves(lambda i: model(rows([8, 2])))", []),
    "numbers": ("serves(lambda i: nn.Linear(32, 1)(rows([32, 4]).float()))", []),
    "a few steps": ("serves(lambda i: model(batch(i)), steps=6)", []),
    "other batches later": (
        "serves(lambda i: model(batch(i) if i < 9 else rows([32, 32])), steps=40)",
        [],
    ),
}


def noted_of(program: str) -> Any:
    return printed(f"{BEGIN}{program}\nassert PADDING._torch", "SEEN['padded_input']")


@pytest.mark.parametrize("name", PROGRAMS)
def test_padding_is_noted(name: str) -> None:
    program, counts = PROGRAMS[name]
    noted = noted_of(program)
    assert [row[7:14] for row in noted] == counts
    assert {(*row[:3], row[4], row[5]) for row in noted} <= {
        ("Model", "Model", "forward", 409, 409)
    }


def test_the_line_of_the_calls_and_that_of_the_model_are_noted() -> None:
    ((_, _, _, [place], *_, steps, _, _, _, _, _, _, _, lines),) = noted_of(
        PROGRAMS["it serves"][0]
    )
    source = (ANNOTATED + SMALL + BEGIN + PROGRAMS["it serves"][0]).splitlines()
    assert steps == 8
    assert [source[int(line.rpartition(":")[2]) - 1] for line in lines] == source[-1:]
    assert "return self.out(" in source[int(place.rpartition("-")[2]) - 1]


def test_an_error_of_ours_does_not_reach_the_program() -> None:
    program = (
        "PADDING._ids_in = None\nserves(lambda i: model(batch(i)))\nassert PADDING._torch is None"
    )
    done = run_profiled(ANNOTATED + SMALL + BEGIN + program)
    assert done.returncode == 0, done.stderr
