"""The index of all tables: each table's name, what it holds, and the module that declares it.

The choices of `--table`, the files, report.json, the page and docs/tables.md have its order. It
imports no polars, so that help and completion start at once; `declaration` imports a module.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Final, Self, overload

if TYPE_CHECKING:
    import polars as pl

    from nsysflow.analysis.tables.table import Table


class TableHolder(ABC):
    """Something that has tables, each an attribute too."""

    @abstractmethod
    def table(self, name: str) -> "pl.DataFrame":
        """The table of that name."""


class TableProperty:
    """A table as an attribute: made when it is read.

    Attributes:
        name: the table's name.
        module: the module in `nsysflow.analysis` that declares it.
        about: what it holds, for help and docs.
        listed: whether `--table` offers it; the others are parts of a listed one.
    """

    def __init__(self, module: str, about: str, *, listed: bool = True) -> None:
        self.module = module
        self.about = about
        self.listed = listed

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What a row is, and the columns."""
        schema = declaration(self.name).schema
        return f"{self.name.upper()}. {schema.about}\n\nColumns: {', '.join(schema)}."

    @overload
    def __get__(self, tables: None, owner: type) -> Self: ...
    @overload
    def __get__(self, tables: TableHolder, owner: type) -> "pl.DataFrame": ...
    def __get__(self, tables: TableHolder | None, owner: type) -> "Self | pl.DataFrame":
        return self if tables is None else tables.table(self.name)


class TablesOfWork(TableHolder):
    """What the host and the GPUs did, and what that cost."""

    findings = TableProperty(
        "findings.findings",
        "what to change, what that would save, and on which numbers it rests",
    )
    accounting = TableProperty(
        "tables.accounting",
        "per GPU, where its time went: compute, exposed communication and copies, idle",
    )
    serving = TableProperty(
        "tables.serving",
        "per kind of step of a serving engine: tokens a second, time between tokens, padding",
    )
    serving_work = TableProperty(
        "tables.serving_work",
        "per kind of step of a serving engine: what attention and matmul take, and their roofline",
    )
    kernels = TableProperty(
        "tables.kernels", "kernels by full name, with class, time, grid and block"
    )
    code = TableProperty("tables.code", "kernel time by the line of your program that launched it")
    operators = TableProperty(
        "tables.operators",
        "PyTorch's operators by shape: FLOPs, bytes, and their share of the roofline",
    )
    waited = TableProperty(
        "tables.waited", "time without compute by what the next compute operation waited for"
    )
    gap_summary = TableProperty("tables.gaps", "idle time by place, cause and culprit")
    gap_histogram = TableProperty("tables.gaps", "gaps by length and cause")
    phases = TableProperty(
        "tables.phases",
        "per NVTX range and its place: what ran for it, how long, and the idle time",
    )
    host_stacks = TableProperty(
        "tables.host_stacks",
        "what the host was running while the GPU waited for it, by function and line",
    )
    gil = TableProperty(
        "tables.gil", "who holds Python's lock (GIL) while the thread that launches waits for it"
    )
    syncs = TableProperty(
        "tables.syncs",
        "waits, blocking copies and allocations, ranked by the idle time behind them",
    )
    run = TableProperty(
        "tables.run",
        "all recorded time: start-up, typical, recurring and longer steps, other loops, the rest",
    )
    gaps = TableProperty(
        "tables.gaps", "every gap, with its cause, place, source line and neighbours"
    )
    steps = TableProperty("tables.steps", "every step, with its time split as in accounting")
    serving_steps = TableProperty(
        "tables.serving", "every step of a serving engine, with its requests and tokens"
    )
    step_parts = TableProperty(
        "tables.step_parts",
        "each step, part by part: kernels, copies, and idle time by cause and place",
    )
    starved = TableProperty(
        "tables.starved",
        "stretches in which the GPU waited for launches, and what a CUDA graph would take",
    )
    launches = TableProperty(
        "tables.launches", "per phase, what launching cost: calls, latency, queue time, run-ahead"
    )
    copies = TableProperty("tables.copies", "copies by direction, kind and phase")
    each_copy = TableProperty("tables.copies", "every copy", listed=False)
    mfu = TableProperty(
        "tables.mfu", "FLOPs per second of steps and phases, and their share of the GPU's peak"
    )
    comm = TableProperty(
        "tables.comm", "communication kernels by operation and phase, with their exposed time"
    )
    collectives = TableProperty("tables.comm", "every communication kernel", listed=False)


class TablesOfRanks(TableHolder):
    """What ranks did to each other; a single report has none of these."""

    ranks = TableProperty(
        "ranks.arrivals",
        "per rank, how late it came to the collectives and how long it waited in them",
    )
    rank_groups = TableProperty(
        "ranks.stragglers",
        "per group of ranks, who held the others up, how often, what that cost and why",
    )
    arrivals = TableProperty(
        "ranks.arrivals", "per collective, when the first and the last rank came"
    )
    rank_steps = TableProperty(
        "ranks.outliers", "per rank and step, its parts, and how late the rank came"
    )
    rank_outliers = TableProperty(
        "ranks.outliers", "ranks with a part of the step that is far from the other ranks'"
    )
    bandwidth = TableProperty(
        "ranks.bandwidth", "per group, operation and size, how fast NCCL moved its bytes"
    )


class TablesOfSamples(TableHolder):
    """What was sampled, parts of tables above, and how far the recording can be trusted."""

    gpu_metrics = TableProperty(
        "tables.gpu_metrics", "per phase and kernel class, the sampled GPU counters"
    )
    clocks = TableProperty(
        "tables.clocks",
        "per step, the GPU's clock, power and temperature, and what kept the clock down",
    )
    traffic = TableProperty(
        "tables.traffic",
        "per step, what each GPU sent and received over PCIe and NVLink, beside its copies",
    )
    cpu = TableProperty(
        "tables.cpu", "per launching thread, how long it waited for a CPU, and who used the CPUs"
    )
    loader_workers = TableProperty(
        "tables.loader_workers",
        "per DataLoader and worker, how busy it is, its rate, and how long the loop waited",
    )
    memory = TableProperty(
        "tables.memory", "per process, GPU and phase, the memory that it has, and where it has most"
    )
    out_of_memory = TableProperty(
        "tables.out_of_memory", "allocations of GPU memory that failed, and what there was then"
    )
    larger_batch = TableProperty(
        "tables.larger_batch", "how many times the batch a GPU's memory would hold"
    )
    peak_memory = TableProperty(
        "tables.peak_memory", "what GPU memory is taken by at its peak, by the place of allocation"
    )
    kept_memory = TableProperty(
        "tables.kept_memory",
        "GPU memory that stays from step to step, by the place that allocates it",
    )
    induced = TableProperty(
        "tables.syncs", "per wait and GPU, the idle time behind it", listed=False
    )
    idle_stacks = TableProperty(
        "tables.host_stacks",
        "the stacks that the host was running while the GPU waited for it, frame by frame",
        listed=False,
    )
    integrity = TableProperty(
        "tables.integrity", "what may be wrong with the recording, and which numbers that affects"
    )


class TablesOfReport(TablesOfWork, TablesOfSamples):
    """The tables of one report."""


class TablesOfRun(TablesOfWork, TablesOfRanks, TablesOfSamples):
    """The tables of the reports of a run."""


_PROPERTIES: Final = {
    name: value
    for chapter in (TablesOfWork, TablesOfRanks, TablesOfSamples)
    for name, value in vars(chapter).items()
    if isinstance(value, TableProperty)
}

NAMES: Final = tuple(_PROPERTIES)
"""All tables, in the order in which people read them."""

ABOUT: Final = {name: of.about for name, of in _PROPERTIES.items() if of.listed}
"""What each table holds that `--table` offers, by name."""


def declaration(name: str) -> "Table":
    """What the module of a table declares of it.

    Raises:
        KeyError: there is no such table.
    """
    module = import_module(f"nsysflow.analysis.{_PROPERTIES[name].module}")
    tables: Iterable[Table] = module.TABLES
    return next(table for table in tables if table.name == name)


def declarations(names: Iterable[str] = NAMES) -> "tuple[Table, ...]":
    """The declarations of these tables, or of all."""
    return tuple(map(declaration, names))
