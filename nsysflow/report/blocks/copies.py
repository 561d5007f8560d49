"""Copies by direction, kind and phase."""

from nsysflow.base.units import duration, number, size
from nsysflow.report.fields import Limits, make_block, more_rows, named_rows, phase_field, value
from nsysflow.report.layout import Block, figure, words
from nsysflow.report.results import Results


def block(results: Results, limits: Limits) -> Block:
    """The copies, those with the most idle time behind them first."""
    table = results.table("copies").sort(
        "induced_idle_ns", "exposed_ns", "bytes", descending=True, maintain_order=True
    )
    return make_block(
        "Copies",
        named_rows(table, limits),
        (
            (figure("idle behind it"), value("induced_idle_ns", duration)),
            (figure("exposed"), value("exposed_ns", duration)),
            (figure("GPU time"), value("gpu_ns", duration)),
            (figure("bytes"), value("bytes", size)),
            (figure("count"), value("count", number)),
            (words("direction"), value("direction")),
            (words("kind"), value("copy_label")),
            phase_field(),
        ),
        caption="Exposed: on the GPU without compute at the same time",
        rest=more_rows(table.height - limits.rows, "copies"),
    )
