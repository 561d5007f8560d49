"""All tables of the oracle, by the names of their declarations."""

from collections.abc import Callable

from tests.oracle.account_table import accounting
from tests.oracle.clocks import clocks, traffic
from tests.oracle.code import code
from tests.oracle.comm import comm
from tests.oracle.copies import copies, syncs
from tests.oracle.cpu import cpu
from tests.oracle.gap_tables import gap_histogram, gap_summary, gaps
from tests.oracle.gil import gil
from tests.oracle.gpu_metrics import gpu_metrics
from tests.oracle.host_stacks import host_stacks, idle_stacks
from tests.oracle.kernels import kernels
from tests.oracle.launches import launches, starved
from tests.oracle.loaders import loader_workers
from tests.oracle.memory import kept_memory, larger_batch, memory, out_of_memory, peak_memory
from tests.oracle.mfu import mfu
from tests.oracle.once import unmeasured
from tests.oracle.operators import operators
from tests.oracle.phase_table import phases
from tests.oracle.report import Report, Row
from tests.oracle.run import run
from tests.oracle.serving import serving, serving_steps, serving_work
from tests.oracle.step_parts import step_parts
from tests.oracle.steps import steps
from tests.oracle.waited import waited

MADE: tuple[Callable[[Report], list[Row]], ...] = (
    *(accounting, waited, gaps, gap_summary, gap_histogram, phases, host_stacks, idle_stacks, gil),
    *(syncs, launches, starved, kernels, operators, copies, comm, steps, run, serving),
    *(serving_steps, serving_work, step_parts, gpu_metrics, clocks, traffic, cpu),
    *(code, loader_workers, memory, kept_memory, peak_memory, larger_batch, out_of_memory, mfu),
)
TABLES = {made.__name__: made for made in MADE}
"""Each makes rows with the schema's columns. `integrity` is missing: its rows contain free text."""


@unmeasured
def oracle_tables(report: Report) -> dict[str, list[Row]]:
    """The rows of every table."""
    return {name: made(report) for name, made in TABLES.items()}
