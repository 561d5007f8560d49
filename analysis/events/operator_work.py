"""How much work an operator is, by its name and what it was called with (spec §24).

FLOPs are those of torch's FlopCounterMode. Bytes are what must be read and written at least, once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final

from nsysflow.analysis.events.operators import BYTES, Argument, Arguments, Dims

_BOOL: Final = 1


@dataclass(frozen=True, kw_only=True)
class Product:
    """Matrix products, `batch` of them, each of rows x depth by depth x columns."""

    batch: int
    rows: int
    columns: int
    depth: int

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each element of each dot product."""
        return 2 * self.batch * self.rows * self.columns * self.depth


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one call of an operator takes.

    Attributes:
        flops: as FlopCounterMode counts; None for what it does not count, or where sizes are not
            known.
        least_flops: those that must be computed: without what a causal mask hides, and of grouped
            convolutions only each group's own.
        bytes: what it must read and write at least; None where that is not known.
    """

    flops: int | None = None
    least_flops: int | None = None
    bytes: int | None = None


def work_of(name: str, args: Arguments) -> Work:
    """What one call takes; all unknown for an operator without a formula."""
    formula = _FORMULAS.get(name) or _FORMULAS.get(name.removesuffix("_"))
    if formula is None and name.startswith(_GENERATED):
        formula = None if any(word in name for word in _PARTIAL) else _each_once
    if formula is None:
        return Work()
    try:
        return formula(args)
    except (LookupError, ValueError, ZeroDivisionError):  # called otherwise than the formula knows
        return Work()


# ---- matrix products


@dataclass(frozen=True)
class _Factors:
    """Which arguments are multiplied, and which one is added; `weight`: the second factor is stored
    as columns x depth."""

    left: int
    right: int
    bias: int | None = None
    weight: bool = False


_PRODUCTS: Final[Mapping[str, _Factors]] = {
    "aten::mm": _Factors(0, 1),
    "aten::bmm": _Factors(0, 1),
    "aten::matmul": _Factors(0, 1),
    "aten::_scaled_mm": _Factors(0, 1),
    "aten::addmm": _Factors(1, 2, 0),
    "aten::_addmm_activation": _Factors(1, 2, 0),
    "aten::baddbmm": _Factors(1, 2, 0),
    "aten::linear": _Factors(0, 1, 2, weight=True),
}


def product_of(name: str, args: Arguments) -> Product | None:
    """The matrix product that an operator is; None if it is none, or its sizes do not fit."""
    factors = _PRODUCTS.get(name.removesuffix("_"))
    if factors is None or max(factors.left, factors.right) >= len(args):
        return None
    left, right = args[factors.left].dims, args[factors.right].dims
    if not left or not right:
        return None
    if len(right) == 1:
        right = (1, *right) if factors.weight else (*right, 1)
    depth, columns = (right[-1], right[-2]) if factors.weight else right[-2:]
    if left[-1] != depth:
        return None
    if len(right) == 2:
        return Product(batch=1, rows=prod(left[:-1]), columns=columns, depth=depth)
    rows, batches = (left[-2], left[:-2]) if len(left) > 1 else (1, ())
    batch = max(prod(batches), prod(right[:-2]))
    return Product(batch=batch, rows=rows, columns=columns, depth=depth)


_TENSOR_CORE_BYTES: Final = 16
"""Rows that begin at a multiple of it are loaded at once."""


def unaligned_sizes(name: str, args: Arguments) -> tuple[tuple[int, int], ...]:
    """The sizes of a product whose rows do not begin at multiples of 16 bytes, each with the number
    of elements that it should be a multiple of; the largest first."""
    factors, product = _PRODUCTS.get(name.removesuffix("_")), product_of(name, args)
    if factors is None or product is None or args[factors.left].type not in BYTES:
        return ()
    multiple = _TENSOR_CORE_BYTES // BYTES[args[factors.left].type]
    rows = [_row_length(args[at]) for at in (factors.left, factors.right)]
    odd = {size for size in (*rows, product.columns) if multiple and size % multiple}
    return tuple((size, multiple) for size in sorted(odd, reverse=True))


def _row_length(arg: Argument) -> int:
    """The size of the dimension of a matrix whose elements are neighbours in memory."""
    dims = _dims(arg)
    return dims[-2] if len(dims) > 1 and arg.transposed else dims[-1]


def _product(name: str, args: Arguments) -> Work:
    product = product_of(name, args)
    if product is None:
        return Work()
    factors = _PRODUCTS[name]
    size = BYTES.get(args[factors.left].type)
    out = None if size is None else product.batch * product.rows * product.columns * size
    used = (factors.left, factors.right, factors.bias)
    read = _total(arg.bytes for at, arg in enumerate(args) if at in used)
    return Work(flops=product.flops, least_flops=product.flops, bytes=_total([read, out]))


# ---- convolutions


@dataclass(frozen=True, kw_only=True)
class _Convolution:
    """Where the arguments of a convolution are; those that an operator does not take are None."""

    stride: int
    padding: int
    dilation: int | None
    transposed: int | bool = False
    output_padding: int | None = None
    groups: int | None = None


_GENERAL: Final = _Convolution(
    stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8
)
_CONVOLUTIONS: Final[Mapping[str, _Convolution]] = {
    "aten::convolution": _GENERAL,
    "aten::_convolution": _GENERAL,
    "aten::convolution_overrideable": _GENERAL,
    "aten::cudnn_convolution": _Convolution(padding=2, stride=3, dilation=4, groups=5),
    "aten::cudnn_convolution_transpose": _Convolution(
        padding=2, output_padding=3, stride=4, dilation=5, groups=6, transposed=True
    ),
    "aten::cudnn_convolution_relu": _Convolution(stride=3, padding=4, dilation=5, groups=6),
    "aten::cudnn_convolution_add_relu": _Convolution(stride=5, padding=6, dilation=7, groups=8),
    "aten::miopen_convolution": _Convolution(padding=3, stride=4, dilation=5, groups=6),
    "aten::miopen_depthwise_convolution": _Convolution(padding=3, stride=4, dilation=5, groups=6),
    "aten::miopen_convolution_transpose": _Convolution(
        padding=3, output_padding=4, stride=5, dilation=6, groups=7, transposed=True
    ),
    "aten::mkldnn_convolution": _Convolution(padding=3, stride=4, dilation=5, groups=6),
    "aten::_slow_conv2d_forward": _Convolution(stride=4, padding=5, dilation=None),
    "aten::_conv_depthwise2d": _Convolution(stride=4, padding=5, dilation=6),
    "aten::conv_depthwise3d": _Convolution(stride=4, padding=5, dilation=6),
}
"""Input and weight are the first two arguments of each."""


def _convolution(of: _Convolution, args: Arguments) -> Work:
    x, weight = _dims(args[0]), _dims(args[1])
    space = len(x) - 2
    stride, padding = (_whole_numbers(args[at], space) for at in (of.stride, of.padding))
    dilation = [1] * space if of.dilation is None else _whole_numbers(args[of.dilation], space)
    is_transposed = type(of.transposed) is int and _yes(args[of.transposed])
    spread = [d * (k - 1) + 1 for d, k in zip(dilation, weight[2:], strict=True)]
    if is_transposed or of.transposed is True:
        more = _whole_numbers(args[of.output_padding or 0], space)
        sides = zip(x[2:], stride, padding, spread, more, strict=True)
        out = [max(0, (n - 1) * s - 2 * p + k + m) for n, s, p, k, m in sides]
        channels = weight[1] * _whole_numbers(args[of.groups or 0], 1)[0]
        flops = _convolved(x[2:], weight, x[0])
    else:
        sides = zip(x[2:], stride, padding, spread, strict=True)  # type: ignore[assignment]
        out = [max(0, (n + 2 * p - k) // s + 1) for n, s, p, k in sides]  # type: ignore[misc]
        channels = weight[0]
        flops = _convolved(out, weight, x[0])
    size = BYTES.get(args[0].type)
    written = None if size is None else size * x[0] * channels * prod(out)
    moved = _total([*(arg.bytes for arg in args[:_OPERANDS]), written])
    return Work(flops=flops, least_flops=flops, bytes=moved)


_OPERANDS: Final = 3
"""Input, weight, and a bias or what is added; a last tensor may be the result."""


def _convolved(points: Sequence[int], weight: Dims, batch: int) -> int:
    """Each element of the weight is multiplied once for each of the points."""
    return 2 * batch * prod(points) * prod(weight)


def _convolution_backward(args: Arguments) -> Work:
    """(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed,
    output_padding, groups, output_mask)."""
    grad, x, weight = (_dims(arg) for arg in args[:3])
    of_input, of_weight = _flags(args[10])[:2]
    transposed = _yes(args[7])
    once = _convolved((x if transposed else grad)[2:], weight, grad[0])
    groups = _whole_numbers(args[9], 1)[0]
    flops = of_input * once + of_weight * once * groups  # as if all channels met, in the weight's
    least = (of_input + of_weight) * once
    read = [args[0].bytes, of_weight * (args[1].bytes or 0), of_input * (args[2].bytes or 0)]
    written = [of_input * (args[1].bytes or 0), of_weight * (args[2].bytes or 0)]
    return Work(flops=flops, least_flops=least, bytes=_total([*read, *written]))


# ---- attention


@dataclass(frozen=True, kw_only=True)
class _Attention:
    """How an attention operator is called.

    Attributes:
        causal: the argument that says whether it is causal, or which mask it has (0 for none).
        heads_first: whether a tensor is batch x heads x sequence x size, rather than batch x
            sequence x heads x size.
        out: the argument that is the forward pass's result, of a backward operator, whose first
            argument is that one's gradient; None for a forward one.
        from_last: whether a causal mask begins at the last query and key, rather than at the first.
    """

    causal: int
    heads_first: bool = True
    out: int | None = None
    from_last: bool = False


_ATTENTIONS: Final[Mapping[str, _Attention]] = {
    "aten::_scaled_dot_product_flash_attention": _Attention(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _Attention(causal=4),
    "aten::_scaled_dot_product_efficient_attention": _Attention(causal=6),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(causal=6),
    "aten::_flash_attention_forward": _Attention(causal=8, heads_first=False),
    "aten::_efficient_attention_forward": _Attention(causal=9, heads_first=False),
    "aten::_cudnn_attention_forward": _Attention(causal=10),
    "flash_attn::_flash_attn_forward": _Attention(causal=5, heads_first=False, from_last=True),
    "aten::_scaled_dot_product_flash_attention_backward": _Attention(causal=11, out=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(causal=7, out=4),
    "aten::_scaled_dot_product_efficient_attention_backward": _Attention(causal=11, out=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(causal=14, out=4),
    "aten::_cudnn_attention_backward": _Attention(causal=14, out=4),
    "aten::_flash_attention_backward": _Attention(causal=11, heads_first=False, out=4),
    "aten::_efficient_attention_backward": _Attention(causal=14, heads_first=False, out=5),
    "flash_attn::_flash_attn_backward": _Attention(
        causal=11, heads_first=False, out=4, from_last=True
    ),
}

PLACES: Final[Mapping[str, _Convolution | _Attention]] = {**_CONVOLUTIONS, **_ATTENTIONS}
"""Where operators take their arguments, by name."""

_FROM_LAST: Final = "2"
"""The mask of `_efficient_attention_*` that begins at the last query and key."""

_FORWARD_PRODUCTS: Final = 1, 1
_BACKWARD_PRODUCTS: Final = 3, 2
"""How many products have the size of queries and keys as a side, and how many that of values: the
backward pass computes the scores again, then the gradients of scores, values, queries and keys."""


def _attention(of: _Attention, args: Arguments) -> Work:
    first = 0 if of.out is None else 1
    query, key, value = (_dims(arg) for arg in args[first : first + 3])
    if len(query) != 4 or len(key) != 4 or len(value) != 4:
        raise ValueError  # of sequences of several lengths, which are not recorded
    heads, sequence = (1, 2) if of.heads_first else (2, 1)
    queries, keys = query[sequence], key[sequence]
    with_keys, with_values = _FORWARD_PRODUCTS if of.out is None else _BACKWARD_PRODUCTS
    each = 2 * query[0] * query[heads] * (with_keys * query[3] + with_values * value[3])
    mask = args[of.causal]
    from_last = of.from_last or mask.concrete == _FROM_LAST
    seen = _seen(queries, keys, from_last=from_last) if _yes(mask) else queries * keys
    used = [*args[first : first + 3]]
    moved = [arg.bytes for arg in used]
    size = BYTES.get(used[0].type)
    if of.out is None:
        moved.append(None if size is None else size * prod(query[:3]) * value[3])
    else:
        moved += [args[0].bytes, args[of.out].bytes, *moved]
    return Work(flops=each * queries * keys, least_flops=each * seen, bytes=_total(moved))


def _seen(queries: int, keys: int, *, from_last: bool) -> int:
    """The pairs in which the key is not after the query."""
    square = min(queries, keys)
    more = max(0, keys - queries) * queries if from_last else max(0, queries - keys) * keys
    return square * (square + 1) // 2 + more


# ---- operators that move bytes


def _inputs(names: Mapping[int, str]) -> dict[str, int]:
    """The number that stands before each operator, by its full name."""
    return {f"aten::{name}": count for count, words in names.items() for name in words.split()}


_POINTWISE: Final = _inputs(
    {
        1: (
            "abs bitwise_not celu cos elu erf exp exp2 expm1 floor gelu hardsigmoid hardswish"
            " hardtanh leaky_relu log log10 log1p log2 mish nan_to_num neg reciprocal relu round"
            " rsqrt sgn sigmoid sign silu sin softplus sqrt tan tanh threshold trunc"
        ),
        2: (
            "add bitwise_and bitwise_or bitwise_xor clamp_max clamp_min div fmod gelu_backward"
            " leaky_relu_backward maximum minimum mul pow remainder rsub sigmoid_backward"
            " silu_backward sub tanh_backward threshold_backward"
        ),
        3: "addcdiv addcmul clamp lerp masked_fill where",
    }
)
_COMPARED: Final = _inputs(
    {
        1: "isfinite isinf isnan logical_not",
        2: "eq ge gt le logical_and logical_or logical_xor lt ne",
    }
)
_LIKE_FIRST: Final = _inputs(
    {
        1: "_log_softmax _softmax cumprod cumsum flip roll tril triu",
        2: "_log_softmax_backward_data _softmax_backward_data",
        3: "_fused_rms_norm native_group_norm",
        4: "native_layer_norm",
        5: (
            "_fused_rms_norm_backward cudnn_batch_norm miopen_batch_norm native_batch_norm"
            " native_group_norm_backward"
        ),
        7: "miopen_batch_norm_backward native_batch_norm_backward native_layer_norm_backward",
        9: "cudnn_batch_norm_backward",
    }
)
_REDUCED: Final = (
    "all amax amin any argmax argmin linalg_vector_norm logsumexp max mean min norm prod std sum"
    " var"
)


INPUTS: Final = {**_POINTWISE, **_COMPARED, **_LIKE_FIRST}
"""How many of its first arguments an operator may read as tensors. Behind these, the profiler lists
the tensor `out` that a program gave for the result."""


def _broadcast(inputs: int, size: int | None, args: Arguments) -> Work:
    """The inputs, and an output as large as they are together; `size` is that of its elements,
    None for that of the widest input."""
    read = args[:inputs]
    tensors = [arg for arg in read if arg.dims is not None]
    shapes = [arg.dims[::-1] for arg in tensors if arg.dims is not None]
    rank = max(map(len, shapes))
    sides = [[shape[at] for shape in shapes if at < len(shape)] for at in range(rank)]
    out = prod(0 if 0 in side else max(side) for side in sides)
    full = [arg for arg in tensors if arg.dims] or tensors
    widest = max(BYTES[arg.type] for arg in full)
    return Work(bytes=_total([*(arg.bytes for arg in read), out * (size or widest)]))


def _like_first(inputs: int, args: Arguments) -> Work:
    """The inputs, and an output like the first."""
    return Work(bytes=_total([*(arg.bytes for arg in args[:inputs]), _dense(args[0])]))


def _each_once(args: Arguments) -> Work:
    """Each argument, read or written."""
    return Work(bytes=_total(arg.bytes for arg in args))


def _copied(args: Arguments) -> Work:
    """(target, source)."""
    return Work(bytes=_total([args[0].bytes, args[1].bytes]))


def _filled(args: Arguments) -> Work:
    """(target, value)."""
    return Work(bytes=args[0].bytes)


def _embedded(args: Arguments) -> Work:
    """(weight, indices): a row is read and written for each index."""
    rows = prod(_dims(args[1])) * prod(_dims(args[0])[1:]) * BYTES[args[0].type]
    return Work(bytes=_total([args[1].bytes, 2 * rows]))


# ---- what all formulas use


def _dims(arg: Argument) -> Dims:
    if not arg.dims:
        raise ValueError
    return arg.dims


def _dense(arg: Argument) -> int:
    if arg.dims is None or arg.type not in BYTES:
        raise ValueError
    return prod(arg.dims) * BYTES[arg.type]


def _total(sizes: Any) -> int | None:
    """Their sum; None if one is not known."""
    known = [*sizes]
    return None if None in known else sum(known)


def _words(arg: Argument) -> list[str]:
    return arg.concrete.strip("[]()").replace(",", " ").split()


def _whole_numbers(arg: Argument, count: int) -> list[int]:
    """`[1, 1]`; one number stands for all."""
    numbers = [int(word) for word in _words(arg)]
    return numbers * count if len(numbers) == 1 else numbers


def _flags(arg: Argument) -> list[bool]:
    return [word in {"True", "true", "1"} for word in _words(arg)]


def _yes(arg: Argument) -> bool:
    if not arg.concrete:
        raise ValueError
    return arg.concrete not in {"False", "false", "0"}


_GENERATED: Final = ("triton_poi_", "triton_per_", "triton_red_")
"""What torch.compile generates: kernels over points, and reductions."""

_PARTIAL: Final = ("embedding", "gather", "index", "scatter", "select", "slice", "split")
"""Words in the names of those that may use only a part of an argument."""

_FORMULAS: Final[Mapping[str, Callable[[Arguments], Work]]] = {
    **{name: partial(_product, name) for name in _PRODUCTS},
    **{name: partial(_convolution, of) for name, of in _CONVOLUTIONS.items()},
    **{name: partial(_attention, of) for name, of in _ATTENTIONS.items()},
    **{name: partial(_broadcast, inputs, None) for name, inputs in _POINTWISE.items()},
    **{name: partial(_broadcast, inputs, _BOOL) for name, inputs in _COMPARED.items()},
    **{name: partial(_like_first, inputs) for name, inputs in _LIKE_FIRST.items()},
    **dict.fromkeys((f"aten::{name}" for name in _REDUCED.split()), _each_once),
    "aten::convolution_backward": _convolution_backward,
    "aten::copy_": _copied,
    "aten::fill_": _filled,
    "aten::zero_": _filled,
    "aten::normal_": _filled,
    "aten::uniform_": _filled,
    "aten::embedding": _embedded,
}
"""By name; an operator in place (`add_`) has that of the other one."""
