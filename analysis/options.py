"""The choices of a caller: the command line's options, in ns."""

from dataclasses import dataclass

from nsysflow.errors import SelectionError
from nsysflow.peaks import Unit


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to analyse; by default all of a report.

    Attributes:
        framework_gap_ns: the longest time between two calls that counts as the framework's own
            (spec §3); longer ones are the application's code.
        domains_added: NVTX domains to count as phases although libraries own them (spec §7).
        domains_removed: further NVTX domains whose ranges are not phases.
        device: the one physical GPU to select; None selects all.
        range: NVTX range that narrows the window to its instances' projections (spec §2).
        from_ns: start of the window, on the report's clock.
        to_ns: end of the window, exclusive.
        step: name of the range that is one step; None finds it (spec §8).
        skip: leading steps that are never steady; None takes spec §8's default.
        steps: half-open `(first, end)` of the steps to select; None on a side leaves it open.
        flops_per_step: FLOPs of one step of each process; None takes what programs declare.
        flops_dtype: the arithmetic of these FLOPs, of `nsysflow.peaks.UNITS`; None takes what
            programs declare, else bf16.
        kernel_classes: further (class, pattern) rules on short names, tried before ours (spec §6).
    """

    framework_gap_ns: int = 50_000
    domains_added: tuple[str, ...] = ()
    domains_removed: tuple[str, ...] = ()
    device: int | None = None
    range: str | None = None
    from_ns: int | None = None
    to_ns: int | None = None
    step: str | None = None
    skip: int | None = None
    steps: tuple[int | None, int | None] | None = None
    flops_per_step: float | None = None
    flops_dtype: Unit | None = None
    kernel_classes: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        """Check that time goes forward.

        Raises:
            SelectionError: the window ends before it starts.
        """
        if self.from_ns is not None and self.to_ns is not None and self.from_ns > self.to_ns:
            raise SelectionError(
                f"--from {self.from_ns / 1e9:g} is later than --to {self.to_ns / 1e9:g}",
                "Give the earlier time to --from",
            )
