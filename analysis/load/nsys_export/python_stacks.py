"""Python stacks: the backtraces of CUDA calls, and periodic samples of every thread.

Both are NVTX marks in domains of their own. Their frames are in `jsonText`, which nsys writes only
with `--include-json=true`.
"""

import html
from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Final

import msgspec
import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.load.decoding import decoded_or_none
from nsysflow.analysis.load.nsys_export.raw import Raw

BACKTRACE: Final = "Python Backtrace on CUDA"
"""The NVTX domain of the backtraces, and the key of their JSON."""

SAMPLE: Final = "Python Periodic Sampling"
"""The same of the samples."""

_StringId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
_Line = Annotated[int, msgspec.Meta(gt=-(1 << 31), lt=1 << 31)]

Stack = tuple[tuple[int, int, int], ...]
"""Ids of file, line and function of each frame, innermost first."""


class _Frame(msgspec.Struct):
    function: _StringId = msgspec.field(name="Function")
    file: _StringId = msgspec.field(name="File")
    line: _Line = msgspec.field(name="Line")


class _Stack(msgspec.Struct):
    frames: list[_Frame] = msgspec.field(name="Frames")


class _Recorded(msgspec.Struct, omit_defaults=True):
    backtrace: _Stack | None = msgspec.field(name=BACKTRACE, default=None)
    sample: _Stack | None = msgspec.field(name=SAMPLE, default=None)

    @property
    def frames(self) -> list[_Frame]:
        stack = self.backtrace or self.sample
        return [] if stack is None else stack.frames


_RECORDED: Final = msgspec.json.Decoder(_Recorded, strict=False)


def stacks(raw: Raw) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """`schema.BACKTRACES`, `schema.SAMPLES` and `schema.FRAMES`.

    Each distinct text is parsed once: a training loop has some thousands, however long it runs.
    Samples of threads without a CUDA call explain no idle time.
    """
    if raw.backtraces.is_empty() and raw.python_samples.is_empty():
        return schema.BACKTRACES.to_frame(), schema.SAMPLES.to_frame(), schema.FRAMES.to_frame()
    calling = raw.calls.select(pl.col("globalTid").unique())
    samples = raw.python_samples.join(calling, on="globalTid", how="semi", maintain_order="left")
    marks = [frame.drop_nulls("jsonText") for frame in (raw.backtraces, samples)]
    texts = pl.concat(frame["jsonText"] for frame in marks).unique(maintain_order=True)
    parsed = [stack_frames(text) for text in texts.cast(pl.String)]
    numbers = {stack: number for number, stack in enumerate(dict.fromkeys(filter(None, parsed)))}
    stack_of = pl.DataFrame(
        {"jsonText": texts, "stack": pl.Series([numbers.get(s) for s in parsed], dtype=pl.UInt32)}
    )
    backtraces, samples = (
        frame.join(stack_of, on="jsonText", maintain_order="left")
        .drop_nulls(["stack", "globalTid"])
        .select(pl.col("start").alias(time), pl.col("globalTid").alias("thread"), "stack")
        for frame, time in zip(marks, ("start_ns", "time_ns"), strict=True)
    )
    return backtraces, samples, _frames(numbers, raw.strings)


def stack_frames(text: str) -> Stack:
    """The frames of a stack; none if `text` is not one."""
    found = decoded_or_none(_RECORDED, text)
    frames = found.frames if found is not None else []
    return tuple((frame.file, frame.line, frame.function) for frame in frames)


def slim_stack(text: str) -> str | None:
    """A stack with only the parts that we read; None if `text` is not one."""
    found = decoded_or_none(_RECORDED, text)
    return msgspec.json.encode(found).decode() if found is not None and found.frames else None


def _frames(numbers: Mapping[Stack, int], strings: pl.DataFrame) -> pl.DataFrame:
    """`schema.FRAMES` of the stacks, without the HTML escapes that nsys puts into strings."""
    columns = {"file": pl.UInt32(), "line": pl.Int64(), "function": pl.UInt32()}
    frames = pl.DataFrame(list(chain.from_iterable(numbers)), schema=columns, orient="row")
    length = pl.Series([len(stack) for stack in numbers], dtype=pl.UInt32)
    stack = pl.int_range(len(length), dtype=pl.UInt32, eager=True).repeat_by(length).explode()
    text = _unescaped(pl.concat([frames["file"], frames["function"]]).unique(), strings)
    return frames.select(
        stack.alias("stack"),
        pl.int_range(pl.len(), dtype=pl.UInt32).over(stack).alias("depth"),
        *(
            pl.col(name).replace_strict(text["id"], text["value"], default=None)
            if name != "line"
            else name
            for name in columns
        ),
    ).match_to_schema(schema.FRAMES)


def _unescaped(ids: pl.Series, strings: pl.DataFrame) -> pl.DataFrame:
    """`id` and `value` of these strings."""
    named = strings.join(ids.to_frame("id"), on="id", how="semi").unique("id", keep="last")
    value = pl.col("value").map_elements(html.unescape, return_dtype=pl.String)
    return named.drop_nulls().with_columns(value)
