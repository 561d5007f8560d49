"""Every kernel refuses what it would misread, repeats its bits, and can be captured in a graph."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

import pytest
import torch
import triton
from torch import Tensor

from nsysflow.kernels.advantage import advantage, advantage_bytes
from nsysflow.kernels.arguments import cdiv, next_power_of_2, require, require_current
from nsysflow.kernels.layernorm_relu_add import (
    COLS_MAX,
    layernorm_relu_add,
    layernorm_relu_add_bytes,
)
from nsysflow.kernels.linear_pair import WIDTH_MAX as PAIR_MAX
from nsysflow.kernels.linear_pair import linear_pair, linear_pair_backward, linear_pair_bytes
from nsysflow.kernels.mingru_scan import OUT_MAX as SCANNED_MAX
from nsysflow.kernels.mingru_scan import (
    mingru_scan,
    mingru_scan_backward_bytes,
    mingru_scan_bytes,
    mingru_scan_linear_backward,
)
from nsysflow.kernels.muon import LONG_MAX, SHORT_MAX, muon, muon_bytes, muon_table
from nsysflow.kernels.narrow_linear import (
    OUT_MAX,
    WIDTH_MAX,
    narrow_linear,
    narrow_linear_backward,
    narrow_linear_backward_bytes,
    narrow_linear_bytes,
)
from nsysflow.kernels.ppo_loss import (
    ppo_loss,
    ppo_loss_and_gradient,
    ppo_loss_backward_bytes,
    ppo_loss_bytes,
)
from nsysflow.kernels.prio import Draws, prio, prio_bytes
from nsysflow.kernels.select_copy import Minibatch, Rollout, select_copy
from nsysflow.kernels.sum_many import sum_many, sum_table
from tests.kernels import (
    test_advantage,
    test_layernorm_relu_add,
    test_linear_pair,
    test_mingru_scan,
    test_muon,
    test_ppo_loss,
    test_prio,
    test_select_copy,
    test_sum_many,
)
from tests.kernels.comparing import Outputs, listed, same

CPU = torch.device("cpu")
BF16 = torch.bfloat16
ROWS = test_select_copy.ROWS
GRADED = ("predictions", "actions", "logprobs", "advantages", "weights", "values", "returns")


def sum_tensors(tensors: list[Tensor], backend: Any) -> Tensor:
    return sum_many(sum_table(tensors), backend=backend)


def good_arguments(device: torch.device) -> dict[str, tuple[Callable[..., object], dict[str, Any]]]:
    """By kernel, how it is called and arguments that it takes."""

    def randn(*shapes: tuple[int, ...]) -> list[Tensor]:
        return [torch.randn(shape, device=device) for shape in shapes]

    def named(names: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip(names, tensors, strict=True))

    rollout = test_select_copy.rollout(device)
    out = test_select_copy.poisoned(rollout, len(ROWS), (5,))
    draws = test_select_copy.drawn(ROWS, device)
    matrices = [(4, 6), (3, 8)]
    working = [tensor.bfloat16() for tensor in randn(*matrices)]
    ended = test_advantage.truncated(test_advantage.rollout(2, 8, device))
    rewards = named(("values", "rewards", "done", "ratio", "bootstrap"), ended)
    rows = test_layernorm_relu_add.inputs(6, 10, torch.float32, device)
    scanned = test_mingru_scan.inputs(device, 2, 4, 6)
    decoded = (scanned[0], *randn((2, 1, 6), (8, 2), (2, 6), (2, 6)))
    decoder = named(("combined", "saved", "gradient", "weight", "dweight"), decoded)
    pair = test_linear_pair.layers(device, (5, 3, 4, 2))
    sloped = [test_linear_pair.slopes(pair), *pair, *randn((4, 3), (2, 4))]
    sides = randn((4, 2), (4, 3), (2, 3), (4, 3), (2, 3))
    layer = named(("gradient", "x", "weight", "dx", "dweight"), sides)
    offset = torch.zeros(1, dtype=torch.int64, device=device)
    priorities = {"advantages": torch.ones(4, 4, device=device), "draws": 3, "seed": 1, "alpha": 1}
    matrix = {"weights": randn(*matrices), "gradients": randn(*matrices), "working": working}
    return {
        "advantage": (advantage, {"backend": "auto"} | rewards),
        "layernorm_relu_add": (layernorm_relu_add, named(("x", "g", "b", "skip"), rows)),
        "linear_pair": (
            linear_pair,
            named(("x", "first", "second", "y"), [*pair, pair[0].new_empty(5, 2)]),
        ),
        "linear_pair_backward": (
            linear_pair_backward,
            named(("dy", "x", "first", "second", "dfirst", "dsecond"), sloped),
        ),
        "mingru_scan": (mingru_scan, named(("combined", "state"), scanned)),
        "mingru_scan_linear_backward": (mingru_scan_linear_backward, decoder),
        "muon_table": (muon_table, matrix),
        "muon": (muon, {"table": muon_table(randn((4, 6)), randn((4, 6))), "lr": randn((1,))[0]}),
        "narrow_linear_backward": (narrow_linear_backward, layer),
        "ppo_loss": (ppo_loss, named(GRADED, test_ppo_loss.inputs(device, 12, 4, 3))),
        "prio": (prio, priorities | {"offset": offset, "out": test_prio.poisoned(3, device)}),
        "select_copy": (select_copy, {"rollout": rollout, "draws": draws, "out": out}),
        "sum_many": (sum_tensors, {"tensors": randn((4, 6), (4, 6)), "backend": "auto"}),
    }


WRONG: Final[dict[str, tuple[str, Callable[[Tensor], Tensor]]]] = {
    "strides": ("^{} must be contiguous", lambda t: torch.stack([t, t], dim=-1)[..., 0]),
    "dtype": ("^{} must be .*, but is torch.complex64", lambda t: t.to(torch.complex64)),
    "dimensions": (r"^{} must be \(.*\), but is \(1, ", lambda t: t[None]),
    # here another tensor may be named, which does not fit to this one any more
    "length": (r"must be \(.*\), but is \(", lambda t: t[..., 1:].contiguous()),
    "device": ("must be on .*, but is on", lambda t: t.to("meta")),
}
"""How any tensor of any kernel can be wrong, and what is said."""

RIGHT: Final = {
    ("sum_many", "tensor 1"): ("dimensions", "length"),
    ("prio", "advantages"): ("length",),
    ("ppo_loss", "predictions"): ("length",),
    ("ppo_loss", "weights"): ("length",),
    ("select_copy", "out.state"): ("dimensions", "length"),
}
"""What is not wrong with these."""

ELEMENTS: Final = {"weights": "weight 1", "gradients": "gradient 1", "working": "copy 1"}
"""What the second tensor of a list is called."""


def wrong(
    name: str, value: Any, change: Callable[[Tensor], Tensor]
) -> Iterator[tuple[str, Any, Tensor]]:
    """What each tensor in an argument is called, the argument with it changed, and the tensor."""
    if isinstance(value, Tensor):
        yield name, change(value), value
    elif isinstance(value, list):
        yield ELEMENTS.get(name, "tensor 1"), [value[0], change(value[1])], value[1]
    elif type(value) in (Rollout, Draws, Minibatch):
        for field in fields(value):
            held = getattr(value, field.name)
            changed = replace(value, **{field.name: change(held)})
            yield f"{name}.{field.name}", changed, held


@pytest.mark.parametrize("how", WRONG)
def test_no_tensor_with_another_shape_dtype_device_or_stride_is_taken(how: str) -> None:
    message, change = WRONG[how]
    for kernel, (call, arguments) in good_arguments(CPU).items():
        for argument, value in arguments.items():
            for name, changed, tensor in wrong(argument, value, change):
                if how in RIGHT.get((kernel, name), ()) or (how == "strides" and len(tensor) == 1):
                    continue
                with pytest.raises(ValueError, match=message.format(name)):
                    call(**(arguments | {argument: changed}))


def wide(tensor: Tensor, columns: int) -> Tensor:
    """Zeros with as many dimensions as a vector or a matrix."""
    return tensor.new_zeros((1,) * (tensor.ndim - 1) + (columns,))


def second(change: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda tensors: [tensors[0], change(tensors[1])]


def first(change: Callable[[Tensor], Tensor]) -> Callable[[list[Tensor]], list[Tensor]]:
    return lambda tensors: [change(tensors[0]), tensors[1]]


Change = tuple[str, Callable[[Any], object], str]
REFUSED: Final[dict[str, list[Change]]] = {
    "advantage": [
        ("done", Tensor.double, "done must be .* but is torch.float64"),
        ("bootstrap", Tensor.bool, "bootstrap must be .* but is torch.bool"),
        ("backend", lambda _: "opencl", "backend must be auto, triton or cuda"),
    ],
    "layernorm_relu_add": [
        ("x", Tensor.long, "^x must be .* torch.int64"),
        ("x g b skip", lambda t: wide(t, COLS_MAX + 1), "^x must have at most"),
        ("b", Tensor.half, "^b must be float32"),
        ("skip", Tensor.bfloat16, "^skip must be float32"),
    ],
    "linear_pair": [
        ("x", Tensor.double, "^x must be .* torch.float64"),
        ("second", Tensor.half, "^second must be bfloat16"),
        ("first second", lambda t: t.new_zeros(PAIR_MAX + 1, 3), "second must be"),
        ("first", lambda t: t.new_zeros(PAIR_MAX + 1, 3), r"second must be \(any, 129\)"),
    ],
    "mingru_scan": [
        ("combined", lambda t: t[..., 1:].contiguous(), r"must be \(B, T, 3H\), but .* 17\)"),
        ("combined", Tensor.double, "combined must be .* torch.float64"),
    ],
    "mingru_scan_linear_backward": [
        ("saved", Tensor.half, "^saved must be float32"),
        ("weight", lambda t: t.new_zeros(SCANNED_MAX + 1, 6), "weight must have 1 to 8 rows"),
    ],
    "muon_table": [
        ("weights", second(Tensor.double), "^weight 1 must be .*float64"),
        ("weights", first(lambda t: t.new_zeros(2 * (SHORT_MAX + 1,))), "^weight 0 .* at most"),
        ("weights", first(lambda t: t.new_zeros(1, LONG_MAX + 1)), "^weight 0 .* at most"),
        ("gradients", second(Tensor.half), "^gradient 1 must be f"),
        ("gradients", lambda g: g[:1], "^gradients must"),
        ("working", first(Tensor.half), "^copy 0 must"),
        ("working", lambda c: c[:1], "^working must"),
    ],
    "muon": [
        ("lr", lambda t: t.repeat(2), r"^lr must .*\(2,\)"),
        ("lr", Tensor.long, "^lr must .*int64"),
    ],
    "narrow_linear_backward": [
        ("x", Tensor.double, "x must be float32 or|x must be bfloat16"),
        ("weight", Tensor.bfloat16, "weight must be float32"),
        ("weight", lambda t: t.new_zeros(OUT_MAX + 1, 3), f"1 to {OUT_MAX} by 1 to {WIDTH_MAX}"),
        ("x weight", lambda t: t.new_zeros(len(t) + 31, 257), "131,072 bytes"),
    ],
    "ppo_loss": [
        ("predictions", lambda t: t[:, :1].contiguous(), "must have 2 to 65 columns, but has 1"),
        ("actions", Tensor.float, r"actions must be .*, but is torch\.float32"),
        ("weights", lambda t: t.new_ones(5), "weights must divide 12 rows evenly, but are 5"),
    ],
    "prio": [
        ("advantages", lambda t: t[:0], "cannot make 3 draws from 0 rows"),
        ("offset", Tensor.int, "offset must be int64"),
        ("seed", lambda _: -1, "seed must be from 0"),
        ("alpha", lambda _: -0.1, "alpha must be at least 0"),
    ],
    "select_copy": [
        ("rollout", lambda r: replace(r, actions=r.actions.half()), "rollout.actions must be"),
        ("rollout", lambda _: test_select_copy.rollout(CPU, segments=0), "5 draws from 0 segments"),
        ("draws", lambda d: replace(d, rows=d.rows.int()), "draws.rows must be int64"),
        ("out", lambda o: replace(o, obs=o.obs.half()), "out.obs must be float32"),
    ],
    "sum_many": [
        ("tensors", second(Tensor.bfloat16), "^tensor 1 must be f"),
        ("tensors", first(Tensor.long), "^tensor 0 must .*int64"),
        ("tensors", first(Tensor.double), "^tensor 0 must .*float64"),
        ("backend", lambda _: "metal", "backend must be"),
        ("backend", lambda _: "cuda", "needs a CUDA device"),
    ],
}


@pytest.mark.parametrize("kernel", REFUSED)
def test_arguments_that_a_kernel_would_misread_are_refused_by_name(kernel: str) -> None:
    call, arguments = good_arguments(CPU)[kernel]
    for names, change, message in REFUSED[kernel]:
        changed = {name: change(arguments[name]) for name in names.split()}
        with pytest.raises(ValueError, match=message):
            call(**(arguments | changed))


class OnAnotherGpu(Tensor):
    """A tensor that claims to be on a second GPU."""

    device = torch.device("cuda", 1)


def test_a_tensor_on_another_gpu_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    require_current("here", torch.device("cuda", 0))
    said = r"^x must be on the current GPU, cuda:0, but is on cuda:1"
    with pytest.raises(ValueError, match=said):
        require("x", torch.empty(3).as_subclass(OnAnotherGpu), (3,))


def test_whole_numbers_for_launches_agree_with_triton() -> None:
    for by in (1, 3, 8):
        assert [cdiv(n, by) for n in range(30)] == [triton.cdiv(n, by) for n in range(30)]
    numbers = [*range(1, 70), 2**20 - 1, 2**20, 2**20 + 1]
    assert [next_power_of_2(n) for n in numbers] == [triton.next_power_of_2(n) for n in numbers]
    assert next_power_of_2(0) == 1


Step = Callable[[], Outputs]


def differentiated(kernel: Callable[..., Any], tensors: Sequence[Tensor]) -> Step:
    """Outputs and gradients; the graph of autograd, which belongs to one stream, is not kept."""
    leaves = [tensor.requires_grad_() for tensor in tensors]

    def step() -> list[Tensor]:
        outs = listed(kernel(*leaves))
        return [*(out.detach() for out in outs), *torch.autograd.grad(outs, leaves, outs)]

    return step


def steps(device: torch.device) -> Iterator[tuple[str, list[Tensor], Step]]:
    """The kernels with inputs that may change between two steps, and a step."""
    for backend in ("triton", "cuda") if device.type == "cuda" else ("triton",):
        inputs = list(test_advantage.rollout(5, 40, device))
        yield f"advantage {backend}", inputs, partial(advantage, *inputs, backend=backend)
        many = test_sum_many.tensors([100, 7 * test_sum_many.CHUNK + 1, 3], device)
        table = sum_table(many)
        yield f"sum_many {backend}", many, partial(sum_many, table, backend=backend)
    long = list(test_advantage.rollout(2, 1100, device))
    yield "advantage of long rows", long, partial(advantage, *long)
    normed = list(test_layernorm_relu_add.inputs(37, 130, torch.float32, device))
    yield "layernorm_relu_add", normed, differentiated(layernorm_relu_add, normed)
    pair = test_linear_pair.layers(device, (70, 12, 20, 65))
    yield "linear_pair", pair, partial(linear_pair, *pair)
    dy = test_linear_pair.slopes(pair)
    yield "linear_pair_backward", [dy, *pair], partial(test_linear_pair.gradients, dy, pair)
    scanned = list(test_mingru_scan.inputs(device, 2, 11, 24, BF16))
    yield "mingru_scan", scanned, differentiated(mingru_scan, scanned)
    layer = [torch.randn(rows, 12, device=device).bfloat16() for rows in (70, 4)]
    yield "narrow_linear", layer, differentiated(narrow_linear, layer)
    graded = test_ppo_loss.inputs(device, 4200, 4, 10)
    yield "ppo_loss", graded, lambda: ppo_loss_and_gradient(tuple(graded))
    source = test_select_copy.rollout(device)
    draws = test_select_copy.drawn(ROWS, device)
    copied = test_select_copy.poisoned(source, len(ROWS), (5, 1, 8))

    def copy() -> list[Tensor]:
        select_copy(source, draws, out=copied)
        return [getattr(copied, field.name) for field in fields(copied)]

    yield "select_copy", [source.obs, source.values, source.advantages], copy


def test_results_repeat_bit_for_bit(device: torch.device) -> None:
    for kernel, _, step in steps(device):
        assert same([tensor.clone() for tensor in listed(step())], listed(step())), kernel


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")  # leaves of another stream
def test_a_captured_graph_uses_the_inputs_at_the_time_of_the_replay(device: torch.device) -> None:
    for kernel, inputs, step in steps(device):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            step()  # compiles
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = listed(step())
        for _ in range(3):
            with torch.no_grad():
                for tensor in inputs:
                    if tensor.is_floating_point():
                        tensor.normal_()
            graph.replay()
            replayed = [tensor.clone() for tensor in captured]
            assert same(replayed, listed(step())), kernel


def nbytes(*tensors: Tensor) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def test_bytes_are_those_of_all_that_a_call_reads_and_writes(device: torch.device) -> None:
    normed = test_layernorm_relu_add.inputs(7, 12, BF16, device)
    y = layernorm_relu_add(*normed)
    assert layernorm_relu_add_bytes(*normed[:2]) == nbytes(*normed, y)

    scanned = test_mingru_scan.inputs(device, 2, 4, 6, BF16)
    outs = mingru_scan(*scanned)
    assert mingru_scan_bytes(*scanned) == nbytes(*scanned, *outs)
    # gradients are like their tensors: dout like out, dfinal like state
    moved = (scanned[0], outs[0], scanned[1], *scanned)
    assert mingru_scan_backward_bytes(*scanned) == nbytes(*moved)

    pair = test_linear_pair.layers(device, (5, 3, 4, 2))
    assert linear_pair_bytes(*pair) == nbytes(*pair, linear_pair(*pair))

    x, weight = torch.empty(70, 12, dtype=BF16), torch.empty(4, 12, dtype=BF16)
    out = torch.empty(70, 4, dtype=BF16)
    assert narrow_linear_bytes(x, weight) == nbytes(x, weight, out)
    assert narrow_linear_backward_bytes(x, weight) == nbytes(x, x, weight, weight, out)

    graded = test_ppo_loss.inputs(device, 12, 4, 3, BF16)
    assert ppo_loss_bytes(*graded) == nbytes(*graded) + 4
    assert ppo_loss_backward_bytes(graded[0]) == graded[0].nbytes + 4

    # momenta and weights are read and written, a gradient is read twice, a copy is written
    weights, copies = [torch.randn(4, 6)], [torch.randn(4, 6).bfloat16()]
    table = muon_table(weights, copies, working=test_muon.clones(copies))
    assert muon_bytes(table) == nbytes(*(weights * 4), *(copies * 3))
    done = test_advantage.rollout(2, 8, device, dtype=BF16, done=torch.uint8)
    assert advantage_bytes(*done) == nbytes(*done) + 2 * 8 * 4  # the output is float32
    ended = test_advantage.truncated(done)
    assert advantage_bytes(*ended) == nbytes(*ended) + 2 * 8 * 4
    assert prio_bytes(torch.ones(4, 8), 3) == 4 * 8 * 4 + 3 * 12
