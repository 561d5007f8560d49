"""What ranges that are alike are called, where the program or PyTorch numbers them (spec §7)."""

from typing import Final

import polars as pl

SERIAL_NUMBERS: Final = r"(?s), (?:seq|op_id|sizes|input_op_ids) =.*$"
"""What PyTorch's `emit_nvtx` adds to an operator's name, so that equal operators group."""

OPERATOR: Final = r"(?s), seq =|::.*, (?:op_id|sizes|input_op_ids) ="
"""In the raw name of a range that is one operator: autograd's sequence number, or a number behind a
name in C++'s namespaces. A person's `record_function` gets an `op_id` from `emit_nvtx` too."""

_TIMES: Final = (
    *("step", "timestep", "iter", "iteration", "epoch", "batch", "minibatch", "microbatch"),
    *("episode", "rollout", "update", "round", "cycle", "request", "frame", "token"),
)
"""Words whose number says when and not where; `layer`, `stage`, `rank` or `worker` say where."""

_LEAST_NAMES: Final = 2
"""A number that nothing else differs in counts nothing: `batch 64` may be a size."""

_PROFILER_STEP: Final = "ProfilerStep"
"""PyTorch's own name of a step, `ProfilerStep#7`: a number however few there are."""


def _counted() -> str:
    """A name of two parts: one that ends in a word of `_TIMES`, the number that counts."""
    word = "|".join(_TIMES)
    inside = "|".join(word.capitalize() for word in _TIMES)
    said = r"(?:[ _-]+(?i:id|idx|index|no|nr|number)\.?|Id|Idx|Index|No|Nr|Number)?"
    number = r"[ _:#=(\[-]*[0-9]+(?:[./][0-9]+)*[\])]?\s*$"
    return rf"(?s)^((?:.*[^\p{{L}}])?(?i:{word})|.*\p{{Ll}}(?:{inside})){said}{number}"


_COUNTED: Final = _counted()


def uncounted(name: pl.Expr) -> pl.Expr:
    """What is left of a name without the number that counts; null where there is none."""
    return name.str.extract(_COUNTED, 1)


def grouped(names: pl.Series) -> pl.Series:
    """Raw names of ranges, those of equal operators and of all steps made equal.

    Only distinct names are looked at for numbers that count: a report has few.
    """
    plain = names.str.replace(SERIAL_NUMBERS, "")
    counted = plain.unique().to_frame("name").with_columns(uncounted(pl.col("name")).alias("stem"))
    enough = (pl.len().over("stem") >= _LEAST_NAMES) | (pl.col("stem") == _PROFILER_STEP)
    counted = counted.drop_nulls().filter(enough)
    if counted.is_empty():
        return plain
    return plain.replace(counted["name"], counted["stem"])
