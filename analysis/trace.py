"""A report as canonical frames, with notes on it: loaders make it, the analysis reads it."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from html import escape
from typing import Any, Final, Literal, Self

import polars as pl

from nsysflow.analysis import schema
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.observed import Observation, Seen
from nsysflow.base.errors import NsysflowError


class NoteKind(StrEnum):
    """What a note is about. Code decides by the kind, never by the text."""

    NEWER_SCHEMA = "newer-schema"
    UNKNOWN_COLUMNS = "unknown-columns"
    UNREAD_TABLES = "unread-tables"
    NO_GPU_WORK = "no-gpu-work"
    NO_CALLS = "no-calls"
    NO_KERNELS = "no-kernels"
    NO_RANGES = "no-ranges"
    GRAPHS_TRACED_WHOLE = "graphs-traced-whole"
    BACKTRACES_NOT_EXPORTED = "backtraces-not-exported"
    OTHER_COUNTERS = "other-counters"
    NO_CORRELATION = "no-correlation"
    NOT_CARRIED = "not-carried"
    UNUSABLE_ROWS = "unusable-rows"
    NAMELESS_CALLS = "nameless-calls"
    NAMELESS_RANGES = "nameless-ranges"
    EVENTS_NOT_RECORDED = "events-not-recorded"
    CAPTURES_NOT_RECORDED = "captures-not-recorded"
    MOSTLY_CAPTURES = "mostly-captures"
    SEVERAL_THREADS = "several-threads"
    OTHER_RANKS = "other-ranks"
    LOCK_NOT_RECORDED = "lock-not-recorded"
    SLOWED_GRAPHS = "slowed-graphs"
    RUN = "run"
    LEFT_OUT = "left-out"
    CUT_OFF = "cut-off"
    UNFIT_RANKS = "unfit-ranks"
    UNSOUND_FINDING = "unsound-finding"
    BACKTRACES_OF_LAUNCHES = "backtraces-of-launches"
    CAPTURED_OPERATORS = "captured-operators"
    ENGINE_FRAMES = "engine-frames"
    SNAPSHOT = "snapshot"
    GAVE_UP_COMPILING = "gave-up-compiling"
    NEVER_COMPILED = "never-compiled"
    UNUSED_GRADIENTS = "unused-gradients"
    REPEATED_CALLS = "repeated-calls"
    PADDED_INPUT = "padded-input"
    UNCHANGED_CALLS = "unchanged-calls"
    WORKER_CODE = "worker-code"
    PRODUCT_ORDER = "product-order"
    ZEROS_IN_PRODUCTS = "zeros-in-products"
    MERGED_ADAPTERS = "merged-adapters"
    MASKED_ROWS = "masked-rows"


@dataclass(frozen=True)
class Note:
    """One sentence for the reader.

    Attributes:
        kind: what it is about.
        text: the sentence, without its full stop.
        public: the same without values of the program; empty where it has none.
        seen: what it is about, where it is about what a program was seen to do.
    """

    kind: NoteKind
    text: str
    public: str = ""
    seen: Observation | None = None

    def __str__(self) -> str:
        return self.text


LOST_EVENTS: Final = (
    r"(?i)\b(?:lost|dropped|discarded)\b.*\bevents?\b|\bevents?\b.*\b(?:lost|dropped|discarded)\b"
)
"""Events were lost."""

MAYBE_LOST: Final = (
    r"(?i)not all CUDA events might have been collected|incomplete CUPTI events dropped"
)
"""In healthy reports too: the GPU had not done all that was launched when the recording ended. They
count only where other launches lack operations."""

IMPORT_ERRORS: Final = (
    r"(?i)\bimport\w*\b.*\b(?:errors?|fail\w*|exception)\b"
    r"|\b(?:errors?|fail\w*|exception)\b.*\bimport\w*\b"
    r"|\bwrong event order\b|\bexterior index\b|\berrors? occurred while processing\b"
)
"""nsys could not read all of what it had recorded: `Importer error status: …`, `Wrong event order
has been detected`, `Cannot find string for an exterior index` (XLA's ranges, nsys 2025.3).
"""


Collector = Literal["nsys", "kineto", "rocprof", "snapshot"]
"""What records a program; `snapshot` is PyTorch's own history of its memory."""


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
        failed_calls: `schema.FAILED_CALLS`; empty where it is not known what calls returned.
        ranges: `schema.RANGES`.
        gil: `schema.GIL`.
        overhead: `schema.OVERHEAD`.
        event_records: `schema.EVENT_RECORDS`.
        waits: `schema.WAITS`.
        operators: `schema.OPERATORS`.
        operator_shapes: `schema.OPERATOR_SHAPES`, addressed by `operators.shape`.
        graph_nodes: `schema.GRAPH_NODES`.
        graph_ranges: `schema.RANGES` that were open while graphs were captured, before the
            recording began.
        threads: `schema.THREADS`.
        devices: `schema.DEVICES`.
        diagnostics: `schema.DIAGNOSTICS`.
        backtraces: `schema.BACKTRACES`.
        samples: `schema.SAMPLES`.
        running: `schema.RUNNING`.
        gradients: `schema.GRADIENTS`.
        frames: `schema.FRAMES`, addressed by the `stack` of these four.
        gpu_samples: `schema.GPU_SAMPLES`.
        gpu_states: `schema.GPU_STATES`.
        gpu_traffic: `schema.GPU_TRAFFIC`.
        thread_cpu: `schema.THREAD_CPU`.
        process_cpu: `schema.PROCESS_CPU`.
        loader_times: `schema.LOADER_TIMES`.
        memory: `schema.MEMORY`.
        out_of_memory: `schema.OUT_OF_MEMORY`.
        gpu_memory: `schema.GPU_MEMORY`.
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
    failed_calls: pl.DataFrame = field(default_factory=lambda: _empty(schema.FAILED_CALLS))
    ranges: pl.DataFrame = field(default_factory=lambda: _empty(schema.RANGES))
    gil: pl.DataFrame = field(default_factory=lambda: _empty(schema.GIL))
    overhead: pl.DataFrame = field(default_factory=lambda: _empty(schema.OVERHEAD))
    event_records: pl.DataFrame = field(default_factory=lambda: _empty(schema.EVENT_RECORDS))
    waits: pl.DataFrame = field(default_factory=lambda: _empty(schema.WAITS))
    operators: pl.DataFrame = field(default_factory=lambda: _empty(schema.OPERATORS))
    operator_shapes: pl.DataFrame = field(default_factory=lambda: _empty(schema.OPERATOR_SHAPES))
    graph_nodes: pl.DataFrame = field(default_factory=lambda: _empty(schema.GRAPH_NODES))
    graph_ranges: pl.DataFrame = field(default_factory=lambda: _empty(schema.RANGES))
    threads: pl.DataFrame = field(default_factory=lambda: _empty(schema.THREADS))
    devices: pl.DataFrame = field(default_factory=lambda: _empty(schema.DEVICES))
    diagnostics: pl.DataFrame = field(default_factory=lambda: _empty(schema.DIAGNOSTICS))
    backtraces: pl.DataFrame = field(default_factory=lambda: _empty(schema.BACKTRACES))
    samples: pl.DataFrame = field(default_factory=lambda: _empty(schema.SAMPLES))
    running: pl.DataFrame = field(default_factory=lambda: _empty(schema.RUNNING))
    gradients: pl.DataFrame = field(default_factory=lambda: _empty(schema.GRADIENTS))
    frames: pl.DataFrame = field(default_factory=lambda: _empty(schema.FRAMES))
    gpu_samples: pl.DataFrame = field(default_factory=lambda: _empty(schema.GPU_SAMPLES))
    gpu_states: pl.DataFrame = field(default_factory=lambda: _empty(schema.GPU_STATES))
    gpu_traffic: pl.DataFrame = field(default_factory=lambda: _empty(schema.GPU_TRAFFIC))
    thread_cpu: pl.DataFrame = field(default_factory=lambda: _empty(schema.THREAD_CPU))
    process_cpu: pl.DataFrame = field(default_factory=lambda: _empty(schema.PROCESS_CPU))
    loader_times: pl.DataFrame = field(default_factory=lambda: _empty(schema.LOADER_TIMES))
    memory: pl.DataFrame = field(default_factory=lambda: _empty(schema.MEMORY))
    out_of_memory: pl.DataFrame = field(default_factory=lambda: _empty(schema.OUT_OF_MEMORY))
    gpu_memory: pl.DataFrame = field(default_factory=lambda: _empty(schema.GPU_MEMORY))
    messages: pl.DataFrame = field(default_factory=lambda: _empty(schema.MESSAGES))
    captures: pl.DataFrame = field(default_factory=lambda: _empty(schema.CAPTURES))
    flops: pl.DataFrame = field(default_factory=lambda: _empty(schema.FLOPS))
    collector: Collector = "nsys"
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
            "API calls": self.calls.height,
            "NVTX ranges": self.ranges.height,
        }
        facts = [f"{count:,} {name}" for name, count in counts.items() if count]
        return [*filter(None, [self.source, gpu_names(self.devices["name"])]), *facts]

    def observations(self, kind: type[Seen]) -> list[Seen]:
        """The modules of that kind that notes are about."""
        return [note.seen for note in self.notes if isinstance(note.seen, kind)]

    def without_rows(self) -> Self:
        """The trace without its operations, calls and ranges, the frames that take memory."""
        return replace(
            self,
            ops=_empty(schema.OPS),
            calls=_empty(schema.CALLS),
            ranges=_empty(schema.RANGES),
        )


_Form = Callable[[str, str, Sequence[str]], str]
"""Makes a text of a kind, a name and facts."""


class Displayable(ABC):
    """Shows itself in a console by its facts, and in a notebook by a page; neither ever fails.

    Attributes:
        page: makes the HTML for notebooks; None for the facts. Pages lie above the analysis, which
            cannot import them: `nsysflow.runs.library` gives one to what it returns.
    """

    page: Callable[[Any], str] | None = None

    @abstractmethod
    def _name(self) -> str:
        """The names of the reports that it is of."""

    @abstractmethod
    def _facts(self) -> list[str]:
        """What matters most of it, a few words each: GPUs, times, steps."""

    def __repr__(self) -> str:
        return self._shown(as_text)

    def _repr_html_(self) -> str:
        return self._shown(as_html, self.page)

    def _shown(self, form: _Form, page: Callable[[Any], str] | None = None) -> str:
        """The page; without one, the facts. An error becomes the text: debuggers and notebooks call
        this, and must not stop."""
        kind = type(self).__name__
        try:
            return form(kind, self._name(), self._facts()) if page is None else page(self)
        except NsysflowError as error:
            return form(kind, self._name(), [error.seen])
        except Exception as error:
            return form(kind, "?", [f"{type(error).__name__}: {error}"])


def as_text(kind: str, name: str, facts: Sequence[str]) -> str:
    """`<Trace of train.sqlite: NVIDIA H200, 315 GPU operations>`."""
    return f"<{kind} of {name}: {', '.join(facts)}>"


def as_html(kind: str, name: str, facts: Sequence[str]) -> str:
    """The same for notebooks, a fact a line."""
    return "<br>".join([f"<b>{kind} of {escape(name)}</b>", *map(escape, facts)])


def gpu_names(names: pl.Series) -> str:
    """`2 x NVIDIA H200`, or the name alone; empty where none is known."""
    counts = Counter(names.drop_nulls())
    return ", ".join(f"{count:,} x {name}" if count > 1 else name for name, count in counts.items())


def facts_of(accounting: pl.DataFrame, steps: pl.DataFrame) -> list[str]:
    """GPUs, window, busy and idle time, and the number of steps.

    Args:
        accounting: `ACCOUNTING`.
        steps: `STEPS`.
    """
    window_ns, idle_ns = accounting.select(pl.col("window_ns", "idle_ns").sum()).row(0)
    if not window_ns:
        return ["no GPU work"]
    gpus = gpu_names(accounting["name"]) or f"{accounting.height} GPUs"
    together = " together" if accounting.height > 1 else ""
    idle_pct = 100 * idle_ns / window_ns
    count = steps["step"].n_unique()  # each process numbers its own from 0
    return [
        gpus,
        f"window {window_ns / 1e6:,.1f} ms{together}",
        f"{100 - idle_pct:.0f} % busy",
        f"{idle_pct:.0f} % idle",
        f"{count:,} step{'' if count == 1 else 's'}",
    ]
