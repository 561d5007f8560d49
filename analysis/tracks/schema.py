"""The frames of the picture. Times are ns on the report's clock, as in the tables."""

from typing import Final

import polars as pl

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.analysis.schema import CAUSE, STEP_KIND, Frame

LANE_KIND: Final = pl.Enum(
    ["steps", "phases", "calls", "host_stack", "profiler", "gaps", "stream", "counter"]
)
"""What a lane shows."""

_ROW: Final = {"lane": pl.UInt32(), "depth": pl.UInt32()}
_TIME: Final = {"start_ns": pl.Int64(), "end_ns": pl.Int64()}
_NAME: Final = pl.Categorical()

LANES: Final = Frame(
    """One row per lane, in display order: the lanes of each process, then those of each GPU.
    `process` and `thread` are the OS pid and tid. `rows` says how many depths the lane needs.""",
    {
        "lane": pl.UInt32(),
        "kind": LANE_KIND,
        "title": pl.String(),
        "process": pl.Int64(),
        "thread": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "rows": pl.UInt32(),
    },
)

OPERATIONS: Final = Frame(
    """One row per GPU operation, by lane, start and launch. `name` is a kernel's short name,
    `full_name` its demangled one. `class` is a kernel's class (`communication` for `comm`), or
    `copy HtoD`, …, `memset`, `graph`. `call` is the row of its launch in CALLS, `phase` its path.
    `bytes` are of copies, `shape` is the row of a kernel in the trace's SHAPES.""",
    {
        **_ROW,
        **_TIME,
        "name": _NAME,
        "full_name": _NAME,
        "class": _NAME,
        "call": pl.UInt32(),
        "phase": pl.UInt32(),
        "bytes": pl.Int64(),
        "shape": pl.UInt32(),
    },
)

CALLS: Final = Frame(
    """One row per CUDA call, by lane and start, the longest first. `class` is the cause that it
    makes; `source` and `via` are lines of the program and of its framework.""",
    {**_ROW, **_TIME, "name": _NAME, "class": CAUSE, "source": _NAME, "via": _NAME},
)

RANGES: Final = Frame(
    """One row per range that can be a phase, and per range of NCCL, by lane and start. `ended` is
    false for a range that was still open when the recording ended.""",
    {**_ROW, **_TIME, "name": _NAME, "ended": pl.Boolean()},
)

STEPS: Final = Frame(
    """One row per step and GPU, by lane and start.""",
    {"lane": pl.UInt32(), **_TIME, "step": pl.Int64(), "kind": STEP_KIND, "device": pl.Int32()},
)

GAPS: Final = Frame(
    """One row per gap of an unnarrowed analysis, by GPU and start. `prev_op`, `next_op` and
    `culprit_op` are rows of OPERATIONS, `culprit_call` of CALLS. `cause` has most of the gap.
    `phase` is the path that has most of that cause.""",
    {
        "lane": pl.UInt32(),
        "device": pl.Int32(),
        **_TIME,
        "prev_op": pl.UInt32(),
        "next_op": pl.UInt32(),
        "cause": CAUSE,
        "culprit_call": pl.UInt32(),
        "culprit_op": pl.UInt32(),
        "phase": pl.UInt32(),
        **{f"{cause}_ns": pl.Int64() for cause in CAUSES},
    },
)

PROFILER: Final = Frame(
    """One row per stretch of the profiler's own work, by lane and start.""",
    {**_ROW, **_TIME, "name": _NAME},
)

HOST_STACKS: Final = Frame(
    """One row per stretch of a thread's time that one stack stands for, by lane and start. `name`
    is the innermost line of the program; else the innermost frame.""",
    {"lane": pl.UInt32(), **_TIME, "name": _NAME},
)

COUNTERS: Final = Frame(
    """One row per sampled value, by lane and time. It covers the time up to the next one.""",
    {"lane": pl.UInt32(), "time_ns": pl.Int64(), "value_pct": pl.Int64()},
)

PATHS: Final = Frame(
    """One row per phase: its path number and name.""",
    {"path": pl.UInt32(), "name": pl.String()},
)
