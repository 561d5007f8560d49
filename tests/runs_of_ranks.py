"""Runs of several ranks, written down or simulated: their digests, and what the oracle takes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import polars as pl

from nsysflow.analysis.ranks.digest import EXCHANGED, JUDGED_STEPS, Digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.tables.accounting import ACCOUNTING
from tests.oracle.ranks import Collective

NAMES = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "ncclDevKernel_AllGather",
    "ncclKernel_SendRecv",
)
"""Short names of NCCL's kernels."""

Step = tuple[int, int, int]
"""Number, start and end of a step, on the report's own clock."""


def ranks_of(kernels: Sequence[Collective], reports: int) -> Ranks:
    """The ranks of a run; its steps last from the first kernel to the last one of each number."""
    return Ranks.of(digests_of(kernels, reports, spans_of(kernels)))


def spans_of(kernels: Iterable[Collective]) -> dict[tuple[int, int | None, int], list[Step]]:
    """Steps from the first kernel to the last one of each number."""
    found: dict[tuple[int, int | None, int], dict[int, tuple[int, int]]] = {}
    for kernel in kernels:
        if kernel.step is not None:
            own = found.setdefault((kernel.report_no, kernel.process, kernel.device), {})
            start_ns, end_ns = own.get(kernel.step, (kernel.start_ns, kernel.end_ns))
            times = min(start_ns, kernel.start_ns), max(end_ns, kernel.end_ns)
            own[kernel.step] = times
    return {rank: [(step, *of) for step, of in sorted(own.items())] for rank, own in found.items()}


def digests_of(
    kernels: Iterable[Collective],
    reports: int,
    steps: dict[tuple[int, int | None, int], list[Step]] | None = None,
) -> list[Digest]:
    """The digest of each report; all its steps are judged.

    Args:
        kernels: of all reports, in any order.
        reports: how many reports there are.
        steps: of a rank: (report number, process, device).
    """
    of_report: list[list[Collective]] = [[] for _ in range(reports)]
    for kernel in sorted(kernels, key=lambda k: (k.device, k.start_ns, k.end_ns, k.stream)):
        of_report[kernel.report_no].append(kernel)
    return [
        Digest(
            report=f"rank{number}",
            source="by hand",
            gpus=ACCOUNTING.to_frame().select("device", "name"),
            notes=(),
            failed=(),
            step_name="step",
            collectives=pl.DataFrame([row_of(k) for k in of], schema=EXCHANGED),
            steps=steps_of(number, steps or {}),
            accounting=ACCOUNTING.to_frame(),
        )
        for number, of in enumerate(of_report)
    ]


def row_of(kernel: Collective) -> dict[str, object]:
    """A row of EXCHANGED."""
    parts = ("compute", "copy", "comm")
    return {
        **{name: getattr(kernel, name) for name in EXCHANGED if hasattr(kernel, name)},
        "begun": kernel.in_window,
        "judged": kernel.in_window,
        **{f"{part}_before_ns": ns for part, ns in zip(parts, kernel.before, strict=True)},
        **{f"{part}_until_ns": ns for part, ns in zip(parts, kernel.until, strict=True)},
    }


def kernels_in(digests: Iterable[Digest]) -> list[Collective]:
    """The communication kernels of all reports, as the oracle takes them."""
    own = {of.name for of in fields(Collective)}  # some have the names of the digest's columns
    return [
        Collective(
            report_no=number,
            report=each.report,
            in_window=row["begun"],
            before=(row["compute_before_ns"], row["copy_before_ns"], row["comm_before_ns"]),
            until=(row["compute_until_ns"], row["copy_until_ns"], row["comm_until_ns"]),
            **{name: value for name, value in row.items() if name in own},
        )
        for number, each in enumerate(digests)
        for row in each.collectives.iter_rows(named=True)
    ]


def steps_of(report_no: int, steps: dict[tuple[int, int | None, int], list[Step]]) -> pl.DataFrame:
    """JUDGED_STEPS of a report: all that is known are the times."""
    rows = [
        {
            **{name: 0 for name, dtype in JUDGED_STEPS.items() if dtype == pl.Int64()},
            "report": f"rank{report_no}",
            "process": process,
            "device": device,
            "step": number,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "duration_ns": end_ns - start_ns,
            "judged": True,
        }
        for (of, process, device), own in steps.items()
        if of == report_no
        for number, start_ns, end_ns in own
    ]
    return pl.DataFrame(rows, schema=JUDGED_STEPS)


@dataclass
class Simulated:
    """Ranks, a report each, that do one thing after the other; collectives wait for all.

    Attributes:
        ranks: how many.
        ahead_ns: how far each report's clock is ahead.
    """

    ranks: int
    ahead_ns: Sequence[int] = ()
    kernels: list[Collective] = field(default_factory=list)
    steps: dict[tuple[int, int | None, int], list[Step]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def __post_init__(self) -> None:
        self.at_ns = [1_000_000] * self.ranks
        self.did = [[0, 0, 0] for _ in range(self.ranks)]
        self.step = -1
        self.begun_ns = list(self.at_ns)

    def compute(self, rank: int, ns: int) -> None:
        """Compute."""
        self._spend(rank, 0, ns)

    def copy(self, rank: int, ns: int) -> None:
        """Copy, while nothing computes."""
        self._spend(rank, 1, ns)

    def idle(self, rank: int, ns: int) -> None:
        """Wait for the host."""
        self.at_ns[rank] += ns

    def _spend(self, rank: int, sort: int, ns: int) -> None:
        self.did[rank][sort] += ns
        self.at_ns[rank] += ns

    def begin_step(self) -> None:
        """Begin the next step on all ranks, and end the one before."""
        for rank in range(self.ranks):
            if self.step >= 0:
                ahead = self.ahead_ns[rank] if self.ahead_ns else 0
                times = (self.begun_ns[rank] + ahead, self.at_ns[rank] + ahead)
                self.steps[rank, 100 + rank, rank % 8].append((self.step, *times))
        self.begun_ns = list(self.at_ns)
        self.step += 1

    def meet(
        self,
        ranks: Sequence[int],
        name: str,
        *,
        ns: int = 100_000,
        communicator: int | None = None,
        stream: int = 7,
        size: int | None = 1 << 20,
    ) -> None:
        """A collective of these ranks, or a send and a receive; nothing runs beside it."""
        last_ns = max(self.at_ns[rank] for rank in ranks) + ns
        for rank in ranks:
            start_ns, before = self.at_ns[rank], tuple(self.did[rank])
            self._spend(rank, 2, last_ns - start_ns)
            ahead = self.ahead_ns[rank] if self.ahead_ns else 0
            place = rank, f"rank{rank}", 100 + rank, rank % 8, stream
            kernel = Collective(*place, start_ns + ahead, last_ns + ahead, name, bytes=size)
            did: dict[str, Any] = {"before": before, "until": tuple(self.did[rank])}
            step = self.step if self.step >= 0 else None
            self.kernels.append(replace(kernel, communicator=communicator, step=step, **did))

    def digests(self) -> list[Digest]:
        """The digests of all reports; the last step is ended."""
        if self.step >= 0:
            self.begin_step()
        return digests_of(self.kernels, self.ranks, self.steps)
