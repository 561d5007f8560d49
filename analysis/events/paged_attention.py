"""How much work attention over a cache of keys and values is (spec §23.11)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from nsysflow.analysis.events.operators import BYTES, Arguments


@dataclass(frozen=True, kw_only=True)
class PagedAttention:
    """What attention over a cache of keys and values takes, whose lengths the operator does not
    say.

    Attributes:
        pair_flops: for each pair of a query and a key.
        context_bytes: the keys and values of a token that it looks at.
        query_bytes: its queries and its result, all tokens together.
        type: the type of the queries.
    """

    pair_flops: int
    context_bytes: int
    query_bytes: int
    type: str


_PAGED: Final[Mapping[str, int]] = {
    "vllm::unified_attention": 0,
    "vllm::unified_attention_with_output": 0,
    "_vllm_fa2_C::varlen_fwd": 0,
    "_vllm_fa3_C::fwd": 0,
    "sgl_kernel::fwd": 0,
    "sglang::unified_attention_with_output": 0,
    "aiter::mha_batch_prefill": 0,
    "sglang_profiler::attention_paged_attention_ragged": 2,
}
"""The first of the three arguments queries, keys and values, whose last two sizes are heads and the
size of a head. The last operator has a number at the end of its name."""

_NUMBER: Final = re.compile(r"_[0-9]+$")


def paged_attention(name: str, args: Arguments) -> PagedAttention | None:
    """The work of an engine's attention; None for other operators, and where a size is missing."""
    first = _PAGED.get(name, _PAGED.get(_NUMBER.sub("", name)))
    if first is None or len(args) < first + 3:
        return None
    query, key, value = args[first : first + 3]
    sides = [arg.dims[-2:] for arg in (query, key, value) if arg.dims and len(arg.dims) > 2]
    if len(sides) < 3 or query.bytes is None or key.type not in BYTES or value.type not in BYTES:
        return None
    (heads, width), (kept, _), (_, value_width) = sides
    tokens = prod(query.dims or ()) // max(1, heads * width)
    return PagedAttention(
        pair_flops=2 * heads * (width + value_width),
        context_bytes=kept * (width * BYTES[key.type] + value_width * BYTES[value.type]),
        query_bytes=tokens * heads * (width + value_width) * BYTES[query.type],
        type=query.type,
    )
