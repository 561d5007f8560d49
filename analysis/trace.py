"""A report as canonical frames: loaders make it, the analysis reads it."""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.notes import Note
from nsysflow.analysis.short_repr import as_html, as_text, gpu_names


def _empty(columns: pl.Schema) -> pl.DataFrame:
    return columns.to_frame()


@dataclass(frozen=True, kw_only=True, repr=False)
class Trace:
    """One report as canonical frames. Nothing after the loader knows which kind of report it was.

    Attributes:
        report: the file's name without folders, as tables print it.
        ops: `schema.OPS`.
        shapes: `schema.SHAPES`, addressed by `ops.detail` of kernels.
        copy_details: `schema.COPY_DETAILS`, addressed by `ops.detail` of memcpys.
        calls: `schema.CALLS`.
        ranges: `schema.RANGES`.
        overhead: `schema.OVERHEAD`.
        event_records: `schema.EVENT_RECORDS`.
        waits: `schema.WAITS`.
        graph_nodes: `schema.GRAPH_NODES`.
        graph_ranges: `schema.RANGES` that were open while graphs were captured, before the
            recording began.
        threads: `schema.THREADS`.
        devices: `schema.DEVICES`.
        diagnostics: `schema.DIAGNOSTICS`.
        backtraces: `schema.BACKTRACES`.
        samples: `schema.SAMPLES`.
        running: `schema.RUNNING`.
        frames: `schema.FRAMES`, addressed by the `stack` of these three.
        gpu_samples: `schema.GPU_SAMPLES`.
        messages: `schema.MESSAGES`, of NCCL's `ranges`.
        captures: `schema.CAPTURES`.
        flops: `schema.FLOPS`.
        collector: what recorded the program.
        source: what wrote the report, e.g. `Nsight Systems 2025.3.2.0, schema 3.20.3`.
        notes: what the reader should know (unknown columns, missing tables).
        scratch: where large frames are kept, these and all made of them; None for memory.
    """

    report: str
    ops: pl.DataFrame = field(default_factory=lambda: _empty(schema.OPS))
    shapes: pl.DataFrame = field(default_factory=lambda: _empty(schema.SHAPES))
    copy_details: pl.DataFrame = field(default_factory=lambda: _empty(schema.COPY_DETAILS))
    calls: pl.DataFrame = field(default_factory=lambda: _empty(schema.CALLS))
    ranges: pl.DataFrame = field(default_factory=lambda: _empty(schema.RANGES))
    overhead: pl.DataFrame = field(default_factory=lambda: _empty(schema.OVERHEAD))
    event_records: pl.DataFrame = field(default_factory=lambda: _empty(schema.EVENT_RECORDS))
    waits: pl.DataFrame = field(default_factory=lambda: _empty(schema.WAITS))
    graph_nodes: pl.DataFrame = field(default_factory=lambda: _empty(schema.GRAPH_NODES))
    graph_ranges: pl.DataFrame = field(default_factory=lambda: _empty(schema.RANGES))
    threads: pl.DataFrame = field(default_factory=lambda: _empty(schema.THREADS))
    devices: pl.DataFrame = field(default_factory=lambda: _empty(schema.DEVICES))
    diagnostics: pl.DataFrame = field(default_factory=lambda: _empty(schema.DIAGNOSTICS))
    backtraces: pl.DataFrame = field(default_factory=lambda: _empty(schema.BACKTRACES))
    samples: pl.DataFrame = field(default_factory=lambda: _empty(schema.SAMPLES))
    running: pl.DataFrame = field(default_factory=lambda: _empty(schema.RUNNING))
    frames: pl.DataFrame = field(default_factory=lambda: _empty(schema.FRAMES))
    gpu_samples: pl.DataFrame = field(default_factory=lambda: _empty(schema.GPU_SAMPLES))
    messages: pl.DataFrame = field(default_factory=lambda: _empty(schema.MESSAGES))
    captures: pl.DataFrame = field(default_factory=lambda: _empty(schema.CAPTURES))
    flops: pl.DataFrame = field(default_factory=lambda: _empty(schema.FLOPS))
    collector: Literal["nsys", "kineto"] = "nsys"
    source: str = ""
    notes: tuple[Note, ...] = ()
    scratch: Scratch | None = None

    def __repr__(self) -> str:
        return as_text("Trace", self.report, self._facts())

    def _repr_html_(self) -> str:
        return as_html("Trace", self.report, self._facts())

    def _facts(self) -> list[str]:
        """What wrote it, the GPUs, and how much there is of each kind."""
        counts = {
            "GPU operations": self.ops.height,
            "CUDA calls": self.calls.height,
            "NVTX ranges": self.ranges.height,
        }
        facts = [f"{count:,} {name}" for name, count in counts.items() if count]
        return [*filter(None, [self.source, gpu_names(self.devices["name"])]), *facts]

    def without_rows(self) -> Self:
        """The trace without its operations, calls and ranges, the frames that take memory."""
        return replace(
            self,
            ops=_empty(schema.OPS),
            calls=_empty(schema.CALLS),
            ranges=_empty(schema.RANGES),
        )
