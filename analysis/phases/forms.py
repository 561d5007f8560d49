"""Range names as frameworks build them, and which part of each is a name (spec §7.6)."""

from typing import Final

import polars as pl

SERIAL_NUMBERS: Final = r"(?s), (?:seq|op_id|sizes|input_op_ids) =.*$"
"""What PyTorch's `emit_nvtx` adds to an operator's name, so that equal operators group."""

_EMITTED: Final = r"(?s), seq =|::.*, (?:op_id|sizes|input_op_ids) ="
"""Autograd's sequence number, or C++ namespaces and a number. `emit_nvtx` also adds an `op_id` to
the program's own `record_function`."""

_THUNK: Final = r"(?s)^Thunk:#.*#$"
"""One operation of XLA."""

_FORMS: Final = (
    (r"(?s)^(\w+):#(?:.*,)?hlo_module=([^,#]*).*#$", "${1} ${2}"),  # XLA: a compiled function
    (r"(?s)^(\w+):#.*=.*#$", "${1}"),  # XLA: the rest
    (r"(?s)^\{'Module': '([^']*)'.*\}$", "${1}"),  # vLLM and SGLang: a layer
    (r"(?s)\{[^{}]*:[^{}]*\}", ""),  # Lightning: the settings of a callback
    (r"^\[pl\]\[(?:profile|module)\]", ""),  # Lightning
    (r"^execute_(?:[0-9]+_)?context_[0-9]+\(.*\)_generation_.*$", "execute_context_generation"),
    (r"^execute_new_[0-9]+_cached_[0-9]+$", "execute_new_cached"),  # vLLM, both
    (r"^step\[([A-Z_]+) bs=[^\]]*\]$", "step[${1}]"),  # SGLang
    (r"^(Torch-Compiled Region: (?:![0-9]+/)?[0-9]+)/[0-9_]+$", "${1}"),  # Dynamo: recompiled
    (r"^(ProfilerStep)#[0-9]+$", "${1}"),
    (r"^(Forward|Backward) [0-9]+$", "${1}"),  # torch.distributed.pipelining: a microbatch
    (r"(?s)^## (.+) ##$", "${1}"),  # Inductor
)
"""What is replaced by what, in this order."""

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_LONG: Final = r"^(?:0x[0-9a-fA-F]{6,}|[0-9a-f]{12,}|[0-9a-z]{32,})$"

_LEAST_DIGITS: Final = 2
"""A long word without digits is a word."""

_ID: Final = "\ue000"
"""Stands where an id stood; of Unicode's private use area, so in no name."""

_JOINED: Final = rf"(?: at|[ _:#=@/-])*(?:\({_ID}\)|\[{_ID}\]|<{_ID}>|{_ID})"
"""An id, its own brackets, and what joins it to the name."""


def is_operator(raw: pl.Expr) -> pl.Expr:
    """Whether PyTorch or XLA opened a range of this raw name around one operator."""
    return raw.str.contains(f"{_EMITTED}|{_THUNK}")


def plain_names(names: pl.Series) -> pl.Series:
    """Names without what frameworks add to them: program numbers, settings, ids."""
    for form, name in _FORMS:
        names = names.str.replace_all(form, name)
    return _without_ids(names)


def _without_ids(names: pl.Series) -> pl.Series:
    """Names without UUIDs, addresses and hashes."""
    words = names.str.replace_all(_UUID, _ID).str.extract_all(r"[\p{L}\p{N}]+|[^\p{L}\p{N}]+")
    word = pl.element()
    is_id = word.str.contains(_LONG) & (word.str.count_matches("[0-9]") >= _LEAST_DIGITS)
    marked = words.list.eval(pl.when(is_id).then(pl.lit(_ID)).otherwise(word)).list.join("")
    return marked.str.replace_all(_JOINED, "")
