"""A decode loop that names its steps as vLLM does, by its own clock and by the tables.

    python -m benchmarks.serving_loop record FOLDER    # on a machine with a GPU: torch alone
    python -m benchmarks.serving_loop compare FOLDER   # anywhere

64 sequences, a model of 16 layers in bf16 with paged keys and values, one CUDA graph a step. The
host schedules in plain Python. `serial` reads the tokens of a step before it prepares the next one,
`ahead` one step later. docs/facts.md has what it gave.
"""

import gzip
import json
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from nsysflow.analysis.replay.replay import Lengths

SEQUENCES, HEADS, WIDTH, LAYERS, LENGTH, PAGE = 64, 16, 128, 16, 512, 16
MODEL: Final = HEADS * WIDTH
VOCABULARY: Final = 32_000
PROMPTS: Final = 32
"""So many sequences read a prompt in each 20th step, where prompts come in."""

WARM, PLAIN, RECORDED = 20, 120, 60
"""Steps: recorded but not measured, measured without recording, and recorded."""

AS_RECORDED_NS: Final = 1 << 60
"""A plain step that is no shorter: recorded is compared with recorded."""


def names() -> list[tuple[str, int, bool, bool]]:
    """The loops: name, rounds of the scheduler, whether prompts come in, whether it is ahead."""
    return [
        (
            f"{'long' if rounds > 100 else 'short'}{'-prompts' * prompts}-{kind}",
            rounds,
            prompts,
            ahead,
        )
        for rounds in (60, 400)
        for prompts in (False, True)
        for kind, ahead in (("serial", False), ("ahead", True))
    ]


class Model:
    """The model, its cache, and a graph of one step.

    Attributes:
        graph: replays a step of all sequences.
        tokens: its input, one token of each.
        places: where in its sequence each token stands.
        found: its output, the next tokens.
    """

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.set_default_device("cuda")
        shapes = ((MODEL, 3 * MODEL), (MODEL, MODEL), (MODEL, 4 * MODEL), (4 * MODEL, MODEL))
        self._layers = [[self._weights(*shape) for shape in shapes] for _ in range(LAYERS)]
        self._words = self._weights(VOCABULARY, MODEL)
        pages = SEQUENCES * LENGTH // PAGE
        self._cache = torch.zeros(LAYERS, 2, pages, PAGE, HEADS, WIDTH, dtype=torch.bfloat16)
        self._table = torch.arange(pages).view(SEQUENCES, -1)
        self.tokens, self.places = self._zeros(SEQUENCES), self._zeros(SEQUENCES)
        self._forward(self.tokens, self.places)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.found = self._forward(self.tokens, self.places)

    def read_prompts(self) -> Any:
        """The next tokens where some sequences read a prompt, launched one by one."""
        found = self.found.clone()
        found[:PROMPTS] = self._forward(self._zeros(PROMPTS), self._zeros(PROMPTS))
        return found

    def _weights(self, *shape: int) -> Any:
        return self.torch.randn(*shape, dtype=self.torch.bfloat16) * 0.02

    def _zeros(self, count: int) -> Any:
        return self.torch.zeros(count, dtype=self.torch.long)

    def _forward(self, tokens: Any, places: Any) -> Any:
        torch, functional = self.torch, self.torch.nn.functional
        count, table = len(tokens), self._table[: len(tokens)]
        seen = (torch.arange(LENGTH)[None] <= places[:, None])[:, None, None]
        page = table.gather(1, (places // PAGE)[:, None])[:, 0]
        x = self._words[tokens]
        for number, (qkv, out, up, down) in enumerate(self._layers):
            normed = functional.rms_norm(x, (MODEL,))
            q, k, v = (normed @ qkv).view(count, 3, HEADS, WIDTH).unbind(1)
            self._cache[number, 0, page, places % PAGE] = k
            self._cache[number, 1, page, places % PAGE] = v
            keys, values = (
                self._cache[number, side][table].view(count, LENGTH, HEADS, WIDTH).transpose(1, 2)
                for side in (0, 1)
            )
            looked = functional.scaled_dot_product_attention(
                q[:, :, None], keys, values, attn_mask=seen
            )
            x = x + looked.reshape(count, MODEL) @ out
            x = x + functional.silu(functional.rms_norm(x, (MODEL,)) @ up) @ down
        return (x @ self._words.T).argmax(-1)


@dataclass(kw_only=True)
class Loop:
    """One loop.

    Attributes:
        model: what it runs.
        rounds: how much the scheduler does.
        prompts: whether prompts come in.
        ahead: whether a step's tokens are read after the next one is launched.
        came: when the tokens of each step came, in s.
    """

    model: Model
    rounds: int
    prompts: bool
    ahead: bool
    came: list[float] = field(default_factory=list)
    _sequences: list[list[int]] = field(default_factory=lambda: [[1] * 8 for _ in range(SEQUENCES)])
    _steps: int = 0
    _waiting: list[tuple[Any, Any]] = field(default_factory=list)
    _buffers: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch = self.model.torch
        self._buffers = [
            [
                torch.empty(SEQUENCES, dtype=torch.long, device="cpu", pin_memory=True)
                for _ in (0, 1)
            ]
            for _ in ("tokens", "places", "found")
        ]

    def run(self, steps: int) -> list[float]:
        """Run so many steps; returns when the tokens of each came."""
        self.came.clear()
        for _ in range(steps):
            self._step()
        self.model.torch.cuda.synchronize()
        return [*self.came]

    def _step(self) -> None:
        torch, model = self.model.torch, self.model
        number, turn = self._steps, self._steps % 2
        self._steps += 1
        for _ in range(self.rounds):  # the scheduler
            for sequence in self._sequences:
                len(sequence)
        reads = self.prompts and number % 20 == 19
        decoded = f"execute_context_0(0)_generation_{SEQUENCES}({SEQUENCES})"
        read = f"execute_context_{PROMPTS}({PROMPTS})_generation_0(0)"
        with torch.profiler.record_function(read if reads else decoded):
            if reads:
                found = model.read_prompts()
            else:
                self._fill_inputs(number, turn)
                model.graph.replay()
                found = model.found
        buffer = self._buffers[2][turn]
        buffer.copy_(found, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        self._waiting.append((done, buffer))
        if len(self._waiting) > self.ahead:
            self._take_tokens(*self._waiting.pop(0))

    def _fill_inputs(self, number: int, turn: int) -> None:
        model, torch = self.model, self.model.torch
        places = self._buffers[1][turn]
        where = [8 + number % 400] * SEQUENCES
        places.copy_(torch.tensor(where, dtype=torch.long, device="cpu"))
        model.places.copy_(places, non_blocking=True)
        if self.ahead:
            model.tokens.copy_(model.found)
            return
        last = [sequence[-1] for sequence in self._sequences]
        tokens = self._buffers[0][turn]
        tokens.copy_(torch.tensor(last, dtype=torch.long, device="cpu"))
        model.tokens.copy_(tokens, non_blocking=True)

    def _take_tokens(self, done: Any, buffer: Any) -> None:
        done.synchronize()
        self.came.append(time.perf_counter())
        for sequence, token in zip(self._sequences, buffer.tolist(), strict=True):
            sequence.append(token)


def apart_ms(came: list[float]) -> list[float]:
    """The ms from each instant to the next."""
    return [1e3 * (b - a) for a, b in pairwise(came)]


def record(folder: Path) -> None:
    """Run and record each loop: its trace, and its own clock in clock.json."""
    model = Model()
    clock = {}
    for name, rounds, prompts, ahead in names():
        loop = Loop(model=model, rounds=rounds, prompts=prompts, ahead=ahead)
        loop.run(2 * WARM)
        plain = apart_ms(loop.run(PLAIN))
        with model.torch.profiler.profile() as profile:
            loop.run(WARM)
            recorded = apart_ms(loop.run(RECORDED))
        clock[name] = {
            "plain_mean_ms": mean(plain),
            "mean_ms": mean(recorded),
            "median_ms": median(recorded),
        }
        trace = folder / f"{name}.json"
        profile.export_chrome_trace(str(trace))
        (folder / f"{name}.json.gz").write_bytes(gzip.compress(trace.read_bytes()))
        trace.unlink()
    (folder / "clock.json").write_text(json.dumps(clock))


def compare(folder: Path) -> None:
    """Print, for each loop, the time between tokens by both; for each pair, the replay and the
    step that it foretells."""
    import polars as pl

    import nsysflow
    from nsysflow.analysis.options import Options
    from nsysflow.analysis.replay.changes import Changes
    from nsysflow.analysis.replay.whatif import whatif

    clock = json.loads((folder / "clock.json").read_text())
    steps = {}
    for name in clock:
        analysis = nsysflow.analyze(
            folder / f"{name}.json.gz", Options(unrecorded_step_ns=AS_RECORDED_NS)
        )
        rows = analysis.serving_steps.filter(pl.col("step") >= WARM)
        waits = [ns / 1e6 for ns in rows["between_tokens_ns"].drop_nulls()]
        own = clock[name]
        _say(
            f"{name}: between tokens {own['mean_ms']:.3f}, median {own['median_ms']:.3f} ms by its"
            f" clock; {mean(waits):.3f}, median {median(waits):.3f} ms in the table"
        )
        steps[name] = whatif(analysis.timeline, Changes(overlapped=name.endswith("serial")))
    for name in (name for name in clock if name.endswith("-serial")):
        found = steps[name]
        ahead = steps[name.replace("serial", "ahead")]
        _say(
            f"{name}: a step of {_ms(found.before)} ms, replayed {_ms(found.after)} ms, ahead"
            f" {_ms(ahead.before)} ms"
        )


def _ms(found: "Lengths") -> str:
    return "no" if found.step_ns is None else f"{found.step_ns / 1e6:.3f}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    {"record": record, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
