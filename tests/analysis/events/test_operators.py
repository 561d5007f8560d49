"""FLOPs of operators beside torch's own count, and where torch's operators take what."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nsysflow.analysis.events.operator_work import INPUTS, PLACES, work_of
from nsysflow.analysis.events.operators import Arguments, arguments

ANYTHING: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
NAMES: Final = (
    *("aten::mm", "aten::linear", "aten::matmul", "aten::convolution", "aten::cudnn_convolution"),
    *("aten::convolution_backward", "aten::_flash_attention_backward", "aten::mul", "aten::copy_"),
    *("aten::_softmax", "aten::sum", "aten::fill_", "aten::embedding", "triton_poi_0", "x"),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.lists(ANYTHING, max_size=12), min_size=4, max_size=4))
def test_no_argument_stops_a_formula(name: str, lists: list[list[Any]]) -> None:
    dims, types, strides, concrete = map(json.dumps, lists)
    args = arguments(dims, types, strides, concrete)
    assert args is not None
    assert (work_of(name, args).flops or 0) >= 0


def counted_in(trace: Path) -> int:
    """The FLOPs of the outermost operators that have any, as those inside repeat them."""
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    calls = [e for e in events if e.get("cat") == "cpu_op" and "Input Dims" in e["args"]]
    calls.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    flops, covered, thread = 0, 0.0, None
    for call in calls:
        own = work_of(call["name"], written(call["args"])).flops
        if own and (call["tid"] != thread or call["ts"] >= covered):
            flops, covered, thread = flops + own, call["ts"] + call["dur"], call["tid"]
    return flops


def written(args: dict[str, Any]) -> Arguments:
    keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    found = arguments(*(json.dumps(args[key]) for key in keys))
    assert found is not None
    return found


def models(torch: Any) -> dict[str, tuple[Any, Any]]:
    """Five small models, each with an input."""
    nn = torch.nn
    attention = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    return {
        "mlp": (nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 10)), (8, 16)),
        "convnet": (
            nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2, padding=1),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.Conv2d(8, 16, 3, padding=2, dilation=2, groups=2),
            ),
            (4, 3, 17, 17),
        ),
        "decoder": (
            nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 4, 2, 2)),
            (2, 3, 9, 9),
        ),
        "transformer": (attention, (2, 12, 32)),
        "lstm": (nn.LSTM(12, 20, 2, batch_first=True), (3, 7, 12)),
    }


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp", "convnet", "decoder", "transformer", "lstm"])
def test_flops_are_those_of_torchs_counter(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    model, sizes = models(torch)[name]

    def step() -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = model(torch.ones(sizes, requires_grad=True))
            (out[0] if isinstance(out, tuple) else out).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()
    profile: Callable[..., Any] = torch.profiler.profile
    with profile(record_shapes=True) as profiler:
        step()
    trace = tmp_path / "t.json"
    profiler.export_chrome_trace(str(trace))
    assert counted_in(trace) == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["flash", "efficient", "cudnn"])
def test_attention_has_the_flops_of_torchs_counter(kind: str) -> None:
    """On the meta device, as the CPU has none of these."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import flop_registry

    query, key, value = (2, 6, 5, 16), (2, 3, 7, 16), (2, 3, 7, 16)
    grad = query
    for suffix, sizes in (("", (query, key, value)), ("_backward", (grad, query, key, value))):
        name = f"_scaled_dot_product_{kind}_attention{suffix}"
        tensors = [torch.empty(size, device="meta") for size in sizes]
        count = flop_registry[getattr(torch.ops.aten, name)](*tensors)
        dims = [[*size] for size in sizes]
        args = {
            "Input Dims": dims + [[]] * 12,
            "Input type": ["c10::Half"] * len(dims),
            "Input Strides": [],
            "Concrete Inputs": ["False"] * 16,
        }
        assert work_of(f"aten::{name}", written(args)).flops == count


@pytest.mark.long
def test_arguments_are_where_torch_has_them() -> None:
    torch = pytest.importorskip("torch")
    torchs = {"causal": ("is_causal", "custom_mask_type")}
    for name, of in PLACES.items():
        space, _, operator = name.partition("::")
        if space != "aten":
            continue
        packet = getattr(torch.ops.aten, operator)
        taken = [arg.name for arg in getattr(packet, packet.overloads()[0])._schema.arguments]
        for field, place in vars(of).items():
            if type(place) is int:
                assert taken[place] in torchs.get(field, (field,)), (name, field)


@pytest.mark.long
def test_no_operator_reads_a_tensor_behind_its_inputs() -> None:
    torch = pytest.importorskip("torch")
    for name, inputs in INPUTS.items():
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
        taken = [(at, arg) for of in schemas for at, arg in enumerate(of.arguments)]
        assert min((at for at, arg in taken if arg.is_out), default=inputs) >= inputs, name
        read = [at for at, arg in taken if "Tensor" in str(arg.type) and not arg.is_out]
        assert max(read) == inputs - 1, name
