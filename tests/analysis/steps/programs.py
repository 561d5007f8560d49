"""Programs that nobody annotated, as the launches that they make, with known numbers of steps."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.oracle.model import Call, Op, PlainTrace, Shape
from tests.tiny import AUTOGRAD, MAIN, call, copy, kernel, launch, plain_of

ADAM: Final = "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>"
SYNC: Final = "cudaStreamSynchronize"
LOAD: Final = "cuLibraryLoadData"
APART_NS: Final = 100


@dataclass(frozen=True)
class Launched:
    """What a program does next: it launches a kernel, a copy or a graph, waits for the GPU, or
    loads code."""

    name: str
    grid: int = 1
    graph: bool = False
    thread: int = MAIN
    stream: int = 7
    device: int = 0


INPUT: Final = Launched("memcpy HtoD")
READ: Final = Launched("memcpy DtoH")
WAIT: Final = Launched(SYNC)
UPDATE: Final = Launched(ADAM)
REPLAY: Final = Launched("captured", graph=True)


def kernels(*names: str, grid: int = 1, thread: int = MAIN) -> list[Launched]:
    """Launches of these kernels."""
    return [Launched(name, grid, thread=thread) for name in names]


def trace_of_program(program: Iterable[Launched]) -> PlainTrace:
    """The trace of a program that launches one after the other, without a range."""
    rows: list[Call | Op] = []
    for number, what in enumerate(program, start=1):
        at = number * APART_NS
        if what.name in (SYNC, LOAD):
            rows.append(call(at, at + 5, what.name, thread=what.thread))
            continue
        called, shape = "cudaGraphLaunch" if what.graph else "cudaLaunchKernel", None
        if what.name.startswith("memcpy"):
            called = "cudaMemcpyAsync"
            op = copy(at + 20, at + 80, number, what.name[-4:], "pinned", "device")
        else:
            op = kernel(at + 20, at + 80, number, name=what.name, device=what.device)
            shape = Shape(grid_x=what.grid)
        op = replace(op, shape=shape, stream=what.stream)
        rows.append(launch(at, at + 5, number, name=called, thread=what.thread))
        rows.append(op)
        if what.graph:
            rows.append(replace(op, start_ns=at + 81, end_ns=at + 85, name="captured too"))
    return plain_of(*rows)


def layers(count: int, kind: str, *, grid: int = 1, thread: int = MAIN) -> list[Launched]:
    """So many equal layers of a network."""
    names = [f"{kind}_{part}" for part in ("norm", "gemm", "bias", "attention", "gemm", "add")]
    return kernels(*names, grid=grid, thread=thread) * count


def forward(count: int = 4, *, grid: int = 1) -> list[Launched]:
    """A network from its input to its loss."""
    inside = layers(count, "forward", grid=grid)
    return [
        *kernels("embedding", grid=grid),
        *inside,
        *kernels("head", "softmax", "nll", grid=grid),
    ]


def backward(count: int = 4, *, grid: int = 1, thread: int = AUTOGRAD) -> list[Launched]:
    """The gradients, which PyTorch computes on a thread of its own."""
    inside = layers(count, "backward", grid=grid, thread=thread)
    return [*kernels("nll_grad", grid=grid, thread=thread), *inside]


def training_step(depth: int = 4, *, grid: int = 1, batches: int = 1) -> list[Launched]:
    """A step of a training that accumulates the gradients of so many batches."""
    batch = [INPUT, *forward(depth, grid=grid), *backward(depth, grid=grid)]
    return [*batch * batches, *kernels("norm_of_gradients"), *[UPDATE] * 3]


def evaluation(batches: int = 3, depth: int = 4) -> list[Launched]:
    """Some batches without gradients."""
    return [INPUT, *forward(depth), READ, WAIT] * batches


def decoding_pass(token: int, depth: int) -> list[Launched]:
    """A model decodes a token, from its embedding to the argmax: no copy, no wait. From a size of
    the cache on, its attention is another kernel."""
    attention = "attention_split" if token > 20 else "attention"
    blocks = [
        replace(one, name=attention) if "attention" in one.name else one
        for one in layers(depth, "decode")
    ]
    return [*kernels("embedding", "position"), *blocks, *kernels("last_norm", "head", "argmax")]


def grouped_pass(groups: int, depth: int = 5) -> list[Launched]:
    """A model whose layers come in groups: so many of one kind, then one of another."""
    group = [*layers(depth, "local"), *layers(1, "global")]
    return [*kernels("embedding"), *group * groups, *kernels("last_norm", "head", "argmax")]


def of_classes(depth: int, classes: int = 40) -> list[Launched]:
    """A detector, which reads what it finds class by class."""
    of_class = [*kernels("mask", "sort", "nms"), READ, WAIT]
    return [*forward(depth), *of_class * classes, *kernels("gather", "top", "scale", "clip") * 4]


def setting_up(random: Random) -> list[Launched]:
    """What comes before the first step: weights, and the trials of an autotuner."""
    weights = [*kernels("normal", "fill") * random.randint(1, 20), *[INPUT] * random.randint(0, 30)]
    trials = [
        one
        for config in range(random.randint(0, 12))
        for one in kernels("clear_cache", "tuned", grid=config + 2) * 25
    ]
    return [*weights, *trials]


def programs_without_loop(random: Random) -> dict[str, Sequence[Launched]]:
    """By kind, a program that repeats no step."""
    names = [f"kernel_{number}" for number in range(random.randint(4, 40))]
    length, time_steps = random.randint(3, 600), random.randint(50, 80)
    return {
        "random kernels": kernels(*random.choices(names, k=length)),
        "random kernels and copies": [
            INPUT if random.random() < 0.1 else one
            for one in kernels(*random.choices(names, k=length))
        ],
        "one forward pass": [INPUT, *forward(random.randint(3, 48)), READ, WAIT],
        "one pass through groups of layers": grouped_pass(random.randint(3, 18)),
        "one pass through layers of experts": [
            *kernels("embedding"),
            *[*layers(1, "attend"), *layers(5, "expert")] * random.randint(20, 48),
            *kernels("last_norm", "head"),
        ],
        "one pass over time steps": [*layers(5, "cell") * time_steps, *kernels("head", "softmax")],
        "one detection that reads for each class": of_classes(random.randint(3, 24)),
        "one training step": training_step(random.randint(3, 48)),
        "one training step that reads in each layer": [
            *[*layers(1, "forward"), READ, WAIT] * random.randint(3, 48),
            *backward(),
            UPDATE,
        ],
        "one pass over time steps, undone without an update": [
            *layers(time_steps, "forward"),
            *layers(time_steps, "backward", thread=AUTOGRAD),
        ],
        "one call of a solver": [
            *kernels("offA_stage1", *["gesvdbj_batch", "svd_column_rotate"] * 9, "offA_stage2"),
            READ,
        ]
        * time_steps,
        "autotuning": setting_up(random),
        "one kernel": kernels("long"),
        "different kernels": kernels(*(f"only_{number}" for number in range(length))),
    }


def without_loop(random: Random, kind: str) -> list[Launched]:
    """A program of that kind, after a start-up."""
    program = programs_without_loop(random)[kind]
    return [*setting_up(random), *program]


WITHOUT_LOOP: Final = (*programs_without_loop(Random(0)),)


Step = Callable[[int], Sequence[Launched]]
"""What the step of that number launches."""


def loops(random: Random) -> dict[str, Step]:
    """By kind, the steps of a program that loops."""
    depth, grid = random.randint(1, 12), random.randint(1, 64)
    step = training_step(depth, grid=grid)
    inference = [INPUT, *forward(depth + 2, grid=grid), READ, WAIT]
    again = [
        replace(one, grid=2) if one == UPDATE else one
        for one in training_step(depth, grid=grid + 1)
    ]  # another model, with other tensors to update

    def evaluated(number: int) -> list[Launched]:
        return [*step, *(evaluation(random.randint(1, 4), depth) if number % 7 == 6 else [])]

    def with_variant(_: int) -> list[Launched]:
        variant = random.choice(("128x64", "128x128", "64x64"))
        return [
            replace(one, name=f"{one.name}_{variant}") if "gemm" in one.name else one
            for one in step
        ]

    def on_streams(_: int) -> list[Launched]:
        return [replace(one, stream=8 if random.random() < 0.3 else 7) for one in [*step, INPUT]]

    def of_four_lengths(number: int) -> list[Launched]:
        """Batches in turn, each with a kernel of its own and time steps for its length."""
        length = 2 + number % 4
        recurrent = kernels(f"gemm_{length}", *["cell", "gate"] * 2 * length, grid=length)
        return [*step[: len(step) // 2], *recurrent, *step[len(step) // 2 :]]

    def decoded(number: int) -> list[Launched]:
        prompt = [] if number else [*layers(depth + 5, "prefill"), *kernels("copy_of_cache")]
        return [*prompt, *decoding_pass(number, depth + 5)]

    return {
        "plain": lambda _: step,
        "decoding": decoded,
        "passes through groups of layers": lambda _: grouped_pass(depth + 2),
        "detections that read for each class": lambda _: of_classes(depth + 2),
        "batches of four lengths in turn": of_four_lengths,
        "evaluation every few steps": evaluated,
        "varying length": lambda _: training_step(depth, grid=random.choice((8, 16, 24, 40, 64))),
        "varying kernels": with_variant,
        "accumulation": lambda _: training_step(depth, grid=grid, batches=4),
        "adversarial": lambda _: [*step, *kernels("transposed", "upsampled"), *again],
        "inference": lambda _: inference,
        "warm-up apart": lambda number: [
            *([] if number else [*inference * 2, *layers(depth + 3, "prefill")]),
            *inference,
        ],
        "graph": lambda _: [INPUT, REPLAY, *kernels("metric")],
        "only graphs": lambda _: [REPLAY],
        "streams": on_streams,
        "reads now and then": lambda number: [*step, *[READ, WAIT] * (number % 10 == 9)],
        "a solver in each step": lambda _: [
            *(*step, *kernels("whiten", *["geqr2", "larft"] * 20), READ)
        ],
        "two devices": lambda _: [
            *(*step, *[replace(one, device=1) for one in step[: len(step) // 2]])
        ],
    }


LOOPING: Final = (*loops(Random(0)),)


LEAST_STEPS: Final = {
    "decoding": 21,
    "passes through groups of layers": 21,
    "detections that read for each class": 21,
}
"""Without an update, and a copy or wait of its own, fewer are no loop."""


def looping(random: Random, kind: str, steps: int) -> list[Launched]:
    """A program of that kind with so many steps, after a start-up."""
    made = [
        one for number, step in enumerate([loops(random)[kind]] * steps) for one in step(number)
    ]
    return [*setting_up(random), *made]
