"""The steps of serving engines by their Python functions, in a trace whose ranges do not name them
(spec §23.14)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.engine_names import ENGINE_FORMS, frame_step
from nsysflow.analysis.load.kineto.document import frame_of
from nsysflow.analysis.load.kineto.running import Span
from nsysflow.analysis.schema import ID_MASK
from nsysflow.analysis.trace import Note, NoteKind


def _function(file: str, names: str) -> re.Pattern[str]:
    """Functions of a file, as torch.profiler writes them."""
    return re.compile(rf"(?:.*/)?(?P<file>{file})\(\d+\): (?P<name>{names})")


_STEPS: Final = (
    _function(r"sglang/srt/managers/tp_worker\.py", "forward_batch_generation"),
    _function(r"vllm/v1/worker/gpu_model_runner\.py", "execute_model"),
)
"""The functions that run a step, and read its tokens."""

_MODES: Final = (
    (
        "prefill",
        _function(
            r"sglang/srt/model_executor/model_runner\.py", "forward_(?:extend|split_prefill)"
        ),
    ),
    ("decode", _function(r"sglang/srt/model_executor/model_runner\.py", "forward_decode")),
    ("decode", _function(r"sglang/srt/model_executor/cuda_graph_runner\.py", "replay")),
)
"""What a step does, by the functions in it."""


def engine_frames(
    ranges: pl.DataFrame, spans: Mapping[int, Sequence[Span]]
) -> tuple[pl.DataFrame, tuple[Note, ...]]:
    """`schema.RANGES` of the steps that functions tell, and a note on them; none where a range is a
    step's.

    Args:
        ranges: `schema.RANGES`.
        spans: what ran on each thread, sorted.
    """
    found = [(thread, step) for thread, of_thread in spans.items() for step in _steps(of_thread)]
    if not found or ranges["name"].str.contains("|".join(ENGINE_FORMS)).any():
        return schema.RANGES.to_frame(), ()
    rows = [
        (*times, "push_pop", thread & ~ID_MASK, thread, None, frame_step(mode), len(ranges) + row)
        for row, (thread, (times, mode, _)) in enumerate(found)
    ]
    functions = dict.fromkeys(function for _, (_, _, function) in found)
    return frame_of(rows, schema.RANGES), tuple(map(_note, functions))


@lru_cache(maxsize=1 << 14)  # a trace has millions of calls of thousands of functions
def _step_function(name: str) -> str:
    """The function of a step, for people; empty for all others."""
    found = next((found for of in _STEPS if (found := of.fullmatch(name))), None)
    return f"{found['name']} ({found['file']})" if found else ""


@lru_cache(maxsize=1 << 14)
def _mode(name: str) -> str:
    """What a step does that calls this function first; empty if that says nothing."""
    return next((kind for kind, of in _MODES if of.fullmatch(name)), "")


def _note(function: str) -> Note:
    return Note(
        NoteKind.ENGINE_FRAMES,
        f"steps are the calls of {function}, as no range names them; how many requests and tokens"
        " they have is not known",
    )


def _steps(spans: Iterable[Span]) -> Iterator[tuple[tuple[int, int], str, str]]:
    """The outermost calls of such a function on a thread: start and end, what it does, and the
    function."""
    open_: tuple[tuple[int, int], str] | None = None
    mode = ""
    for start_ns, minus_end_ns, is_operator, _, name in spans:
        if open_ is not None and start_ns >= open_[0][1]:
            yield open_[0], mode, open_[1]
            open_ = None
        if is_operator:
            continue
        if open_ is not None:
            mode = mode or _mode(name)
            continue
        function = _step_function(name)
        if function:
            open_, mode = ((start_ns, -minus_end_ns), function), ""
    if open_ is not None:
        yield open_[0], mode, open_[1]
