"""Operators with shapes (spec §24): who launched what, the work of a call, and the table."""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from itertools import zip_longest
from math import prod
from typing import Any, Final

from nsysflow.base.peaks import MEMORY
from tests.oracle.accounting import is_comm
from tests.oracle.clocks import peak_of
from tests.oracle.model import Op, Operator, OperatorShape
from tests.oracle.report import Report, Row

Arguments = dict[str, Any]

SIZES: Final = {
    "double": (8, "float64"),
    "float": (4, "float32"),
    "c10::BFloat16": (2, "bfloat16"),
    "c10::Half": (2, "float16"),
    "c10::Float8_e4m3fn": (1, "float8_e4m3fn"),
    "long int": (8, "int64"),
    "int": (4, "int32"),
    "bool": (1, "bool"),
}
"""Bytes and torch's name of the types in the tests."""

CONVOLUTIONS: Final = {
    "aten::convolution": "x w bias stride padding dilation transposed output_padding groups",
    "aten::cudnn_convolution": "x w padding stride dilation groups",
    "aten::cudnn_convolution_transpose": "x w padding output_padding stride dilation groups",
    "aten::miopen_convolution": "x w bias padding stride dilation groups",
    "aten::_slow_conv2d_forward": "x w kernel bias stride padding",
}
ATTENTIONS: Final = {
    "aten::_scaled_dot_product_flash_attention": "q k v dropout causal",
    "aten::_flash_attention_forward": "q k v cum_q cum_k max_q max_k dropout causal",
    "aten::_efficient_attention_forward": "q k v bias cum_q cum_k max_q max_k dropout causal",
    "aten::_flash_attention_backward": "grad q k v out lse cum_q cum_k max_q max_k drop causal",
    "aten::_cudnn_attention_backward": (
        "grad q k v out lse seed offset bias cum_q cum_k max_q max_k dropout causal"
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": (
        "grad q k v bias out lse seed offset dropout mask causal"
    ),
}
PRODUCTS: Final = {
    "aten::mm": "a b",
    "aten::bmm": "a b",
    "aten::matmul": "a b",
    "aten::addmm": "bias a b",
    "aten::linear": "a weight bias",
}
BACKWARD: Final = "grad x w bias stride padding dilation transposed output_padding groups mask"


def tensors(shape: OperatorShape) -> list[dict[str, Any]]:
    """§24.3: the arguments, with the dims, type and bytes of tensors."""
    given = [json.loads(text or "[]") for text in (shape.dims, shape.types, shape.strides)]
    concrete = json.loads(shape.concrete or "[]")
    rows = []
    for dims, kind, strides, value in zip_longest(*given, concrete):
        is_list = kind == "TensorList"
        is_tensor = not is_list and (bool(dims) or kind in SIZES)
        row: Row = {"dims": dims if is_tensor else None, "type": kind, "value": value, "bytes": 0}
        if is_tensor:
            elements = 1
            for size, stride in zip(dims, strides or dims, strict=True):
                elements *= size if stride or not size else 1
            row["bytes"] = elements * SIZES[kind][0] if kind in SIZES else None
        if is_list:
            row |= {"bytes": None, "list": len(dims)}
        rows.append(row)
    return rows


def total(*sizes: int | None) -> int | None:
    """Null as soon as one is."""
    return None if None in sizes else sum(size for size in sizes if size is not None)


def numbers(value: str, count: int) -> list[int]:
    """`[1, 1]`."""
    found = json.loads(value) if value.startswith("[") else [int(value)]
    return found * count if len(found) == 1 else found


def product(named: Arguments) -> Row:
    """A multiplication and an addition for each element of each dot product."""
    a = named["a"]["dims"]
    b = named["weight"]["dims"][::-1] if "weight" in named else named["b"]["dims"]
    results = prod(a[:-1]) * b[-1]
    flops = 2 * results * a[-1]
    size = SIZES[named["a"]["type"]][0]
    read = total(*(row["bytes"] for row in named.values()))
    return work(flops, flops, total(read, results * size))


def convolution(named: Arguments, rows: list[Row], *, transposed: bool) -> Row:
    """Each point of the output takes each element of the weight once."""
    x, w = named["x"]["dims"], named["w"]["dims"]
    out = []
    for at, side in enumerate(x[2:]):
        stride, padding = (numbers(named[n]["value"], 2)[at] for n in ("stride", "padding"))
        dilation = numbers(named["dilation"]["value"], 2)[at] if "dilation" in named else 1
        kernel = dilation * (w[2 + at] - 1) + 1
        if transposed:
            more = numbers(named["output_padding"]["value"], 2)[at]
            out.append((side - 1) * stride - 2 * padding + kernel + more)
        else:
            out.append(len(range(0, side + 2 * padding - kernel + 1, stride)))
    groups = numbers(named["groups"]["value"], 1)[0] if "groups" in named else 1
    channels = w[1] * groups if transposed else w[0]
    flops = 2 * x[0] * prod(x[2:] if transposed else out) * prod(w)
    size = SIZES[named["x"]["type"]][0]
    result = x[0] * channels * prod(out) * size
    return work(flops, flops, total(*(row["bytes"] for row in rows[:3]), result))


def convolution_backward(named: Arguments) -> Row:
    """Once for each gradient that is asked for."""
    grad, x, w = (named[name] for name in ("grad", "x", "w"))
    for_input, for_weight, *_ = json.loads(named["mask"]["value"].lower())
    points = (x if named["transposed"]["value"] == "True" else grad)["dims"][2:]
    once = 2 * grad["dims"][0] * prod(points) * prod(w["dims"])
    flops = least = 0
    moved = grad["bytes"]
    if for_input:
        flops, least, moved = flops + once, least + once, moved + w["bytes"] + x["bytes"]
    if for_weight:
        flops += once * int(named["groups"]["value"])
        least, moved = least + once, moved + x["bytes"] + w["bytes"]
    return work(flops, least, moved)


def attention(name: str, named: Arguments) -> Row:
    """Two products of queries and keys, five with their gradients."""
    q, k, v = (named[each]["dims"] for each in "qkv")
    if not re.search("scaled_dot|cudnn", name):  # batch x sequence x heads x size
        q, k, v = ([d[0], d[2], d[1], d[3]] for d in (q, k, v))
    mask = named["causal"]["value"]
    seen = 0
    for query in range(q[2]):
        for key in range(k[2]):
            before = key - query <= (k[2] - q[2] if mask == "2" else 0)
            seen += before or mask in ("False", "0")
    backward = "grad" in named
    each = 2 * q[0] * q[1] * ((3 if backward else 1) * q[3] + (2 if backward else 1) * v[3])
    inputs = [named[each]["bytes"] for each in "qkv"]
    if backward:
        moved = total(*inputs, *inputs, named["grad"]["bytes"], named["out"]["bytes"])
    else:
        moved = total(*inputs, q[0] * q[1] * q[2] * v[3] * SIZES[named["q"]["type"]][0])
    return work(each * q[2] * k[2], each * seen, moved)


def broadcast(rows: list[Row], size: int | None) -> Row:
    """A result as large as all of them together."""
    given = [row for row in rows if row["dims"] is not None]
    sides = zip_longest(*(row["dims"][::-1] for row in given), fillvalue=1)
    result = prod(0 if 0 in side else max(side) for side in sides)
    widest = max(SIZES[row["type"]][0] for row in given if row["dims"] or len(given) == 1)
    moved = total(*(row["bytes"] for row in rows), result * (size or widest))
    return work(None, None, moved)


def like_first(rows: list[Row]) -> Row:
    """A result like the first."""
    result = prod(rows[0]["dims"]) * SIZES[rows[0]["type"]][0]
    return work(None, None, total(*(row["bytes"] for row in rows), result))


def each_once(rows: list[Row]) -> Row:
    """Every argument."""
    return work(None, None, total(*(row["bytes"] for row in rows)))


OTHERS: Final[dict[str, Callable[[list[Row]], Row]]] = {
    "aten::mul": lambda rows: broadcast(rows[:2], None),
    "aten::add_": lambda rows: broadcast(rows[:2], None),
    "aten::exp": lambda rows: broadcast(rows[:1], None),
    "aten::eq": lambda rows: broadcast(rows[:2], 1),
    "aten::_softmax": lambda rows: like_first(rows[:1]),
    "aten::native_layer_norm": lambda rows: like_first(rows[:4]),
    "aten::sum": each_once,
    "triton_poi_fused_add_0": each_once,
    "aten::copy_": lambda rows: each_once(rows[:2]),
    "aten::fill_": lambda rows: each_once(rows[:1]),
    "aten::embedding": lambda rows: work(
        None,
        None,
        rows[1]["bytes"]
        + 2 * prod(rows[1]["dims"]) * prod(rows[0]["dims"][1:]) * SIZES[rows[0]["type"]][0],
    ),
}


def work(flops: int | None, least: int | None, moved: int | None) -> Row:
    """The work of one call."""
    return {"flops": flops, "least_flops": least, "bytes": moved}


def work_of(shape: OperatorShape) -> Row:
    """§24.4: the work of one call."""
    name, rows = shape.name, tensors(shape)
    for table in (PRODUCTS, CONVOLUTIONS, ATTENTIONS, {"aten::convolution_backward": BACKWARD}):
        if name in table:
            named = dict(zip(table[name].split(), rows, strict=False))
            if table is PRODUCTS:
                return product(named)
            if table is ATTENTIONS:
                return attention(name, named)
            if table is CONVOLUTIONS:
                asked = named.get("transposed", {}).get("value") == "True"
                return convolution(named, rows, transposed=asked or "transpose" in name)
            return convolution_backward(named)
    return OTHERS[name](rows) if name in OTHERS else work(None, None, None)


def in_words(rows: list[Row]) -> tuple[str, str]:
    """§24.2: shapes and dtype."""
    parts = []
    for row in rows:
        if "list" in row:
            words = {0: "tensors", 1: "1 tensor"}
            parts.append(words.get(row["list"], f"{row['list']} tensors"))
        elif row["dims"] is not None:
            parts.append("x".join(map(str, row["dims"])) or "1")
    types = dict.fromkeys(row["type"] for row in rows if row["dims"] is not None)
    return ", ".join(parts), "+".join(SIZES[kind][1] for kind in types)


def unit_of(rows: list[Row], named_tf32_ns: int, total_ns: int) -> str | None:
    """§24.6: the arithmetic, of an operator with products."""
    kind = rows[0]["type"]
    if kind == "float":
        return "tf32" if 2 * named_tf32_ns > total_ns else "float32"
    units = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "c10::Float8_e4m3fn": "fp8"}
    return units.get(kind)


def link_of(report: Report, op: Op) -> Operator | None:
    """§24.1, §24.9: the operator that an operation belongs to."""
    of_call = [
        row
        for row in report.trace.operators
        if (row.process, row.correlation) == (op.process, op.correlation)
        and row.at_ns in (None, op.start_ns)
    ]
    return of_call[0] if of_call else None


def operators(report: Report) -> list[Row]:
    """§24.2: the table."""
    found: dict[tuple[Any, ...], list[tuple[Op, Any]]] = defaultdict(list)
    device_ns: dict[int, int] = defaultdict(int)
    for device in report.devices:
        for index in report.on(device):
            op = report.ops[index]
            if op.kind != "kernel":
                continue
            device_ns[device] += op.end_ns - op.start_ns
            link = link_of(report, op)
            if link is not None and not is_comm(op):
                takes = work_of(link.shape)
                words = in_words(tensors(link.shape))
                key = (op.process, device, link.shape.name, *words, *takes.values())
                found[key].append((op, link))
    return [
        row_of(report, process, device, kernels, device_ns[device])
        for (process, device, *_), kernels in found.items()
    ]


def row_of(
    report: Report, process: Any, device: Any, kernels: list[tuple[Op, Any]], device_ns: int
) -> Row:
    """§24.5 to §24.7: one row, of a device whose kernels take `device_ns`."""
    shape = kernels[0][1].shape
    rows, takes = tensors(shape), work_of(shape)
    total_ns = sum(op.end_ns - op.start_ns for op, _ in kernels)
    tf32_ns = sum(op.end_ns - op.start_ns for op, _ in kernels if "tf32" in op.name)
    calls = len({link.operator for _, link in kernels})
    least, moved = takes["least_flops"], takes["bytes"]
    unit = None if least is None else unit_of(rows, tf32_ns, total_ns)
    peak, bandwidth = roof(report, device, unit)
    compute_s = 0.0 if least is None else None if peak is None else least / peak
    memory_s = None if moved is None or bandwidth is None else moved / bandwidth
    limit = share = None
    if compute_s is not None and memory_s is not None:
        limit = "compute" if compute_s > memory_s else "memory"
        share = 100 * max(compute_s, memory_s) * calls / (total_ns / 1e9) if total_ns else None
    shapes, dtype = in_words(rows)
    return {
        **report.about(process, device=device),
        "operator": shape.name,
        "shapes": shapes,
        "dtype": dtype,
        "calls": calls,
        "kernels": len(kernels),
        "total_ns": total_ns,
        "share_pct": 100 * total_ns / device_ns if device_ns else None,
        **takes,
        "flops_per_s": per_s(least, calls, total_ns),
        "bytes_per_s": per_s(moved, calls, total_ns),
        "intensity": least / moved if least is not None and moved else None,
        "unit": unit,
        "limit": limit,
        "roofline_pct": share,
    }


def roof(report: Report, device: int, unit: str | None) -> tuple[float | None, float | None]:
    """§24.6: the peaks of a GPU: FLOP/s of this arithmetic, and bytes/s."""
    gpu, name = report.gpu(device), report.gpu_name(device) or ""
    peak = None if unit is None else peak_of(report, device, unit)  # type: ignore[arg-type]
    return peak, None if gpu is None else gpu.memory_bytes_per_s or MEMORY.get(name)


def per_s(each: int | None, calls: int, total_ns: int) -> float | None:
    """A rate while the kernels run."""
    return None if each is None or not total_ns else each * calls * 1e9 / total_ns
