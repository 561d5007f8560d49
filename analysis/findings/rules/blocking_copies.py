"""`pageable-copy` and `blocking-pinned-copy`: the host waits until data has been copied.

From pageable memory the driver copies twice, through a pinned buffer of its own, and the host waits
for the first copy. From pinned memory the GPU copies by itself, and the host goes on, if the
program lets it.
"""

from collections.abc import Iterator
from typing import Final

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.findings.subject import Subject
from nsysflow.analysis.findings.waiting import stalls_of

PAGEABLE: Final = (
    "pin_memory=True in the DataLoader (or tensor.pin_memory()), and .to(device,"
    " non_blocking=True)",
    "copy many small tensors as one",
    "copy the next batch on a stream of its own while this one computes",
)
PINNED: Final = (
    "pass non_blocking=True to .to() and .copy_(): the memory is pinned already",
    "for a copy to the host, wait for an event when the data is needed, not at once",
)


def blocking_copies(subject: Subject) -> Iterator[Finding]:
    """Each line (or phase, where no lines are known) at which the host waits for copies."""
    for stalls in stalls_of(subject, "pageable"):
        what = "copy of pageable memory"
        yield stalls.finding(subject, rule="pageable-copy", what=what, change=PAGEABLE)
    for stalls in stalls_of(subject, "pinned"):
        what = "copy of pinned memory that the host waits for"
        yield stalls.finding(subject, rule="blocking-pinned-copy", what=what, change=PINNED)
