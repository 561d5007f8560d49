"""Operators with shapes: the table beside its oracle, and who launched what."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.load import load
from tests.analyses import EXAMPLES, SCHEMAS, rows_of
from tests.analysis.load.kineto.traces import call, event, kernel, write
from tests.oracle.model import Device, Operator, OperatorShape, PlainTrace, to_trace
from tests.oracle.operators import operators
from tests.oracle.report import Report
from tests.oracle.strategies import traces
from tests.tiny import PROCESS, plain_of
from tests.tiny import kernel as tiny_kernel

HALF, SINGLE, INDEX, TRUTH = "c10::BFloat16", "float", "long int", "bool"


def called(name: str, *args: object, strides: list[object] | None = None) -> OperatorShape:
    """An operator; an argument is `[type, sizes]` of a tensor, else the text of a value."""
    tensors = [arg if isinstance(arg, list) else ["Scalar", []] for arg in args]
    types, dims = json.dumps([of[0] for of in tensors]), json.dumps([of[1] for of in tensors])
    concrete = json.dumps(["" if isinstance(arg, list) else arg for arg in args])
    return OperatorShape(name, dims, types, json.dumps(strides) if strides else None, concrete)


def tensor(*sizes: int, of: str = HALF) -> list[object]:
    return [of, [*sizes]]


IMAGES, FILTERS, WIDE = tensor(4, 6, 9, 9), tensor(8, 3, 3, 3), tensor(6, 4, 3, 3)
HEADS, KEYS = tensor(2, 4, 5, 16), tensor(2, 4, 7, 16)
BY_TOKEN = tensor(2, 5, 4, 16)
ONES, TWOS, ZEROS = "[1, 1]", "[2, 2]", "[0, 0]"

POOL: Final = (
    called("aten::mm", tensor(64, 32), tensor(32, 50_257)),
    called("aten::mm", tensor(64, 32, of=SINGLE), tensor(32, 16, of=SINGLE)),
    called("aten::mm", tensor(64, 32), tensor(32, 16), strides=[[32, 1], [0, 1]]),
    called("aten::mm", tensor(64, 32), tensor(32, 16), tensor(64, 16)),  # the last is the result
    called("aten::bmm", tensor(3, 8, 4), tensor(3, 4, 9)),
    called("aten::matmul", tensor(2, 3, 8, 4), tensor(4, 9)),
    called("aten::addmm", tensor(16), tensor(8, 4), tensor(4, 16), "1", "1"),
    called("aten::linear", tensor(2, 8, 4), tensor(16, 4), tensor(16)),
    called("aten::convolution", IMAGES, FILTERS, "", TWOS, ONES, ONES, "False", ZEROS, "2"),
    called("aten::convolution", IMAGES, WIDE, "", TWOS, ONES, ONES, "True", ONES, "2"),
    called("aten::cudnn_convolution", IMAGES, FILTERS, ONES, TWOS, ONES, "2", "True"),
    called("aten::cudnn_convolution_transpose", IMAGES, FILTERS, ONES, ZEROS, TWOS, ONES, "1"),
    called("aten::miopen_convolution", IMAGES, FILTERS, "", ONES, ONES, TWOS, "2"),
    called("aten::_slow_conv2d_forward", IMAGES, tensor(8, 6, 3, 3), "[3, 3]", "", ONES, ONES),
    *(
        called(
            "aten::convolution_backward",
            *(tensor(4, 8, 9, 9), IMAGES, FILTERS, "[8]", ONES, ONES, ONES, "False", ZEROS, "2"),
            asked,
        )
        for asked in ("[True, True, True]", "[False, True, False]", "[True, False, False]")
    ),
    called("aten::_scaled_dot_product_flash_attention", HEADS, KEYS, KEYS, "0.", "True"),
    called("aten::_scaled_dot_product_flash_attention", KEYS, HEADS, HEADS, "0.", "True"),
    called("aten::_flash_attention_forward", *[BY_TOKEN] * 3, "", "", "5", "5", "0.", "False"),
    *(
        called(
            "aten::_efficient_attention_forward",
            *(tensor(2, 5, 4, 16), *[tensor(2, 7, 4, 16)] * 2, "", "", "", "5", "7", "0."),
            mask,
        )
        for mask in "012"
    ),
    called(
        "aten::_flash_attention_backward", *[BY_TOKEN] * 5, tensor(2, 4, 5, of=SINGLE),
        "", "", "5", "5", "0.", "True",
    ),
    called(
        "aten::_cudnn_attention_backward", *[HEADS] * 5, tensor(2, 4, 5, 1, of=SINGLE),
        "", "", "", "", "", "5", "5", "0.", "True",
    ),
    called(
        "aten::_scaled_dot_product_efficient_attention_backward",
        HEADS, HEADS, KEYS, KEYS, "", HEADS, tensor(2, 4, 5, of=SINGLE), "", "", "0.", "[]",
        "False",
    ),
    called("aten::mul", tensor(4, 1, 8), tensor(3, 8), strides=[[8, 8, 1], [0, 1]]),
    called("aten::mul", tensor(4, 8), tensor(of=SINGLE)),
    called("aten::mul", tensor(4, 8), tensor(of=SINGLE), tensor(4, 8)),  # the last is `out`
    called("aten::exp", tensor(4, 8), tensor(4, 8)),
    called("aten::add_", tensor(4, 8), tensor(4, 8), "1"),
    called("aten::eq", tensor(4, 8, of=INDEX), "3"),
    called("aten::_softmax", tensor(4, 8), "-1", "False"),
    called("aten::_softmax", tensor(4, 8), "-1", "False", tensor(4, 8)),
    called("aten::native_layer_norm", tensor(4, 8), "[8]", tensor(8), tensor(8), "1e-5"),
    called("aten::sum", tensor(4, 8), "[1]", "False", ""),
    called("triton_poi_fused_add_0", tensor(4, 8), tensor(4, 8), "32"),
    called("triton_poi_fused_index_0", tensor(4, 8), tensor(4, 8), "32"),
    called("aten::copy_", tensor(4, 8, of=SINGLE), tensor(4, 8), "False"),
    called("aten::fill_", tensor(4, 8, of=TRUTH), "0"),
    called("aten::embedding", tensor(100, 8), tensor(4, 3, of=INDEX), "-1", "False", "False"),
    called("aten::cat", ["TensorList", [[4, 8], [5, 8]]], "0"),
    called("aten::cat", ["TensorList", [[4, 8]]], "0"),
    called("aten::cat", ["TensorList", []], "0"),
    called("fbgemm::permute", tensor(4, 8)),
)  # fmt: skip

GPUS: Final = ("NVIDIA H200", "NVIDIA A10", None)


@settings(max_examples=2 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(traces(), st.data())
def test_the_table_is_the_oracles(model: PlainTrace, data: st.DataObject) -> None:
    launched = sorted({(op.process, op.correlation) for op in model.ops if op.correlation})
    links = tuple(
        Operator(process, correlation, data.draw(st.integers(0, 2)) + 10 * at, POOL[at])
        for process, correlation in launched
        if process is not None and correlation is not None
        and (at := data.draw(st.integers(0, len(POOL) - 1))) % 7
    )  # fmt: skip
    starts = Counter((op.process, op.correlation, op.start_ns) for op in model.ops)
    links += tuple(
        Operator(op.process, op.correlation, 1_000 + number, POOL[number % len(POOL)], op.start_ns)
        for number, op in enumerate(model.ops)
        if op.kind == "kernel" and op.process is not None and op.correlation
        and starts[op.process, op.correlation, op.start_ns] == 1
        and not any((op.process, op.correlation) == (row.process, row.correlation) for row in links)
    )  # fmt: skip
    rate = data.draw(st.sampled_from((None, 10**12)))
    devices = tuple(
        Device(device, data.draw(st.sampled_from(GPUS)), None, 4, rate)
        for device in sorted({op.device for op in model.ops})
    )
    tf32 = data.draw(st.booleans())
    ops = tuple(replace(op, name=f"{op.name}_tf32") if tf32 else op for op in model.ops)
    assert_alike(replace(model, ops=ops, operators=links, devices=devices))


def test_each_operator_has_the_oracles_work() -> None:
    rows, links = [], []
    for number, shape in enumerate(POOL, 1):
        start = 10_000 * number
        again = number + len(POOL)
        rows += [tiny_kernel(start, start + 1_000, number), tiny_kernel(start, start, again)]
        links += [Operator(PROCESS, each, each, shape) for each in (number, again)]
    device = Device(0, "NVIDIA H200", None, 132, None)
    assert_alike(replace(plain_of(*rows), operators=tuple(links), devices=(device,)))


def test_the_tensor_for_the_result_is_not_read() -> None:
    sizes = (tensor(4, 8), tensor(of=SINGLE), tensor(4, 8))
    shapes = called("aten::mul", *sizes[:2]), called("aten::mul", *sizes)
    rows = [tiny_kernel(1_000 * at, 1_000 * at + 500, at) for at in (1, 2)]
    links = tuple(Operator(PROCESS, at, at, shape) for at, shape in enumerate(shapes, 1))
    found = nsysflow.analyze(to_trace(replace(plain_of(*rows), operators=links))).operators
    assert found["bytes"].to_list() == [2 * 4 * 8 * 2 + 4] * 2  # bfloat16 in and out, a float32


def assert_alike(model: PlainTrace) -> None:
    found = nsysflow.analyze(to_trace(model)).operators.to_dicts()
    columns = list(SCHEMAS["operators"])
    assert rows_of(found, columns) == rows_of(operators(Report(model)), columns)


def test_shapes_that_are_none_leave_the_trace_readable(tmp_path: Path) -> None:
    odd: tuple[Any, ...] = (3, "x", None, {}, [None], [[-1, 2]], [[[1], []]], [[1e400]])
    events = [
        event("cpu_op", "aten::mm", 10 * at, 9, args={"Input Dims": dims, "Input type": 7})
        for at, dims in enumerate(odd)
    ]
    launches = [call(10 * at + 1, at + 1) for at in range(len(odd))]
    kernels = [kernel(correlation=at + 1) for at in range(len(odd))]
    table = nsysflow.analyze(load(write(tmp_path, *events, *launches, *kernels))).operators
    assert table["flops"].to_list() == [None] * len(table)
    assert table["calls"].sum() == 4


def test_without_shapes_there_are_no_operators(tmp_path: Path) -> None:
    events = (event("cpu_op", "aten::mm", 0, 9), call(1, 1), kernel(correlation=1))
    assert nsysflow.analyze(load(write(tmp_path, *events))).operators.is_empty()
