"""Which line of the program launched each kernel: rules and borders, and two figures of them."""

from dataclasses import replace

import nsysflow
from tests.agreement import Picture, assert_pictures_agree
from tests.oracle import model
from tests.oracle.model import PlainTrace
from tests.tiny import (
    AUTOGRAD,
    MAIN,
    WORKER,
    Row,
    analysis_of,
    kernel,
    launch,
    opened,
    plain_of,
    sample,
)

US = 1_000
STEP_US = 1_000


def step(
    number: int, *rows: Row, thread: int = MAIN, names: tuple[str, ...] = ("a", "b")
) -> list[Row]:
    """A step of 1 ms that launches kernels of these names, 100 us apart; they run 50 us later."""
    begin = number * STEP_US * US
    made: list[Row] = [opened(begin, begin + 900 * US, "step"), *rows]
    for place, name in enumerate(names):
        at, call = begin + (100 + 100 * place) * US, 10 * number + place + 1
        made.append(launch(at, at + 10 * US, call, thread=thread))
        made.append(kernel(at + 50 * US, at + 90 * US, call, name=name))
    return made


def seen(us: float, function: str, *, thread: int = MAIN) -> Row:
    """A sample at that us."""
    return sample(round(us * US), function, thread=thread)


THREE = [*step(0), *step(1), *step(2)]
FROM_OTHER_STEPS = [
    *THREE,
    seen(105, "first"),  # while the first kernel of a step is launched
    *(seen(at, "between") for at in (1_000, 2_000)),
    seen(1_190, "second"),  # 10 us before the second one's launch
]


def of_autograd(*rows: Row) -> list[Row]:
    """Steps whose kernels an autograd thread launches, while these are seen."""
    return [row for number in range(3) for row in step(number, thread=AUTOGRAD)] + [*rows]


def with_backtrace(*rows: Row) -> PlainTrace:
    """These rows with a backtrace of the launch at 1100 us."""
    frames = (model.Frame("/home/me/model.py", 7, "forward"),)
    return replace(plain_of(*rows), backtraces=(model.Backtrace(1_100 * US, MAIN, frames),))


def code_of(name: str) -> tuple[model.Frame, ...]:
    """A function of the program; an operator where the name has colons."""
    if "::" in name:
        return (model.Frame(None, None, name),)
    return (model.Frame("/home/me/model.py", 7, name),)


def with_gradients(*gradients: tuple[float, float, str]) -> PlainTrace:
    """Two launches of autograd's thread, at 100 and 200 us, while another one waits, and the
    stretches in us that are tied to a function, or an operator, of the forward pass."""
    return replace(
        plain_of(*step(0, thread=AUTOGRAD)),
        running=(model.Running(0, 900 * US, MAIN, code_of("train")),),
        gradients=tuple(
            model.Gradient(round(begin * US), round(end * US), AUTOGRAD, code_of(name))
            for begin, end, name in gradients
        ),
    )


def of_another_process(trace: PlainTrace) -> PlainTrace:
    """The same, but what ran was of a thread of another process, which makes one call."""
    process = 1 << 30
    return replace(
        trace,
        calls=(*trace.calls, model.Call(0, 9, process, process | 1, None, "cudaMalloc")),
        running=tuple(replace(one, thread=process | 1) for one in trace.running),
    )


PICTURES: dict[str, Picture] = {
    "gradients of a line": with_gradients((90, 120, "forward")),
    "the call begins where gradients do, and where they end": with_gradients(
        (100, 101, "forward"), (150, 200, "loss")
    ),
    "a function that ended when the call began": replace(
        plain_of(*step(0)), running=(model.Running(50 * US, 100 * US, MAIN, code_of("train")),)
    ),
    "gradients inside others": with_gradients((90, 290, "outer"), (150, 220, "inner")),
    "inner gradients of no line": with_gradients((90, 290, "outer"), (150, 220, "aten::mm")),
    "nothing else was seen of the process": of_another_process(
        with_gradients((90, 120, "forward"))
    ),
    "the shorter of two, and the earlier": with_gradients(
        (90, 140, "longer"), (90, 120, "shorter"), (190, 220, "earlier"), (190, 220, "later")
    ),
    "the same launch of another step was seen": FROM_OTHER_STEPS,
    "another name at the same place": [
        *(*step(0, names=("a", "b")), *step(1, names=("a", "c"))),
        *(seen(at, "f") for at in (105, 205, 305)),
        seen(1_150, "g"),
    ],
    "launches outside all steps": [
        *(launch(0, 10 * US, 1), kernel(20 * US, 30 * US, 1)),
        *(launch(100 * US, 110 * US, 2), kernel(120 * US, 130 * US, 2)),
        *(seen(at, "f") for at in (5, 25)),
        seen(105, "g"),
    ],
    "the earlier of two as near": [*THREE, seen(90, "before"), seen(120, "behind"), seen(500, "x")],
    "no further than two periods": [*step(0), *(seen(at, "f") for at in (10, 20, 30))],
    "one sample has no period": [*THREE, seen(95, "beside")],
    "one sample in a call": [*THREE, seen(205, "inside")],
    "an autograd thread asks the one that waits for it": of_autograd(
        *(seen(at, "backward") for at in (100, 200, 300)), seen(105, "hook", thread=AUTOGRAD)
    ),
    "the thread that was seen most": of_autograd(
        *(launch(5, 6, 91, thread=WORKER), kernel(7, 8, 91)),
        *(seen(at, "backward") for at in (100, 200, 300)),
        *(seen(at, "load", thread=WORKER) for at in (100, 150, 200, 300)),
    ),
    "a backtrace of one call": with_backtrace(*THREE),
    "a library's own code does not count": replace(
        plain_of(*THREE),
        samples=tuple(
            model.Sample(at * US, MAIN, (model.Frame("/usr/lib/python3.12/queue.py", 1, "get"),))
            for at in (105, 205, 305)
        ),
    ),
}


def test_pictures_of_launching_code_agree_with_the_oracle() -> None:
    assert_pictures_agree(PICTURES)


def test_a_launch_has_the_code_that_was_seen_with_it_in_another_step() -> None:
    rows = analysis_of(*FROM_OTHER_STEPS).code
    assert rows.select("source", "kernels", "total_ns", "share_pct", "kernel").rows() == [
        ("train.py:1 in first", 3, 120 * US, 50.0, "a"),
        ("train.py:1 in second", 3, 120 * US, 50.0, "b"),
    ]


def test_the_backward_pass_belongs_to_the_line_whose_gradients_it_computes() -> None:
    trace = model.to_trace(with_gradients((90, 120, "forward")))
    rows = nsysflow.analyze(trace).code
    assert rows.select("source", "waits", "backward", "kernel").rows() == [
        ("model.py:7 in forward", False, True, "a"),
        ("model.py:7 in train", True, False, "b"),
    ]


def test_what_was_not_seen_is_a_row_of_its_own() -> None:
    rows = analysis_of(*step(0), *(seen(at, "f") for at in (93, 95, 97, 99, 101))).code
    assert rows.select("source", "kernel").rows() == [("train.py:1 in f", "a"), (None, "b")]
