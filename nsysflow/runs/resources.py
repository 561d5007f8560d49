"""How much memory and how many cores a report takes, how much there is of them, and what is done if
memory is not enough."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nsysflow.analysis.frames.scratch import Scratch

_REPORT_BYTES: Final = 200_000_000
_BYTES_PER_BYTE: Final = 6
_PACKED: Final = 10
_PACKED_AS: Final = (".xz", ".gz", ".zst", ".nsys-rep")
"""A report takes about so much memory, plus six times its SQLite file (1.0 M kernels: 179 MB and
1.1 GB, docs/facts.md). Packed it is a tenth as large."""

_LARGE_BYTES: Final = 6_000_000_000
_SHARE: Final = 2
"""A report that takes more than this, or than half of the free memory, is analysed from disk."""

_ROOM_BYTES: Final = 3_500_000_000
_ROOM_SHARE: Final = 6
"""Tables of a large report are written to disk once it takes this much memory, or this share of
what is free. At 10 M kernels half of them never are (docs/scale.md)."""

_ALLOCATOR: Final = "_RJEM_MALLOC_CONF"
_KEEP: Final = "narenas:1,oversize_threshold:0,dirty_decay_ms:10000,muzzy_decay_ms:0"

_CGROUPS: Final = Path("/sys/fs/cgroup")
_LIMITS: Final = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""By the controller's name in /proc/self/cgroup, in both versions of control groups: the files with
a limit and with what is taken, and the part of that which the kernel can drop."""


def needed_bytes(file: Path) -> int:
    """The memory that a report takes at most when it is analysed there."""
    return _REPORT_BYTES + _BYTES_PER_BYTE * unpacked_bytes(file)


def is_large(needed: int, free: int) -> bool:
    """Whether a report that needs so much memory is better analysed from disk."""
    return needed > min(_LARGE_BYTES, free // _SHARE)


def keep_memory() -> None:
    """Let polars keep freed memory for ten seconds, for all threads, unless the user chose
    otherwise.

    Most frames of the analysis live for less, and it is slow to return their memory and ask for it
    again: this saves half of the page faults. Kept for ever, freed memory would take twice of what
    10 M kernels need (docs/facts.md). Polars reads the setting when it loads.
    """
    os.environ.setdefault(_ALLOCATOR, _KEEP)


def scratch_for(file: Path, *, low_memory: bool) -> "Scratch | None":
    """Where large frames of a report are kept that do not fit into memory; None if all fit.

    Args:
        file: the report.
        low_memory: whether to keep all of them on disk, however small the report is.
    """
    free = free_bytes()
    if not low_memory and not is_large(needed_bytes(file), free):
        return None
    from nsysflow.analysis.frames.scratch import Scratch

    return Scratch(_folder(os.environ), room_bytes=0 if low_memory else room_bytes(free))


def room_bytes(free: int) -> int:
    """The memory that a large report may take before its tables are written to disk."""
    return min(_ROOM_BYTES, free // _ROOM_SHARE)


def _folder(environment: Mapping[str, str]) -> Path:
    """A folder on a disk: TMPDIR if it is set, else the user's cache folder. The usual one for
    temporary files often lies in memory."""
    from tempfile import gettempdir  # takes 5 ms, which -h has not

    from nsysflow.nsys.installations import user_cache

    folder, temporary = user_cache(), Path(gettempdir())
    if "TMPDIR" in environment:
        return temporary
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return temporary
    return folder if os.access(folder, os.W_OK | os.X_OK) else temporary


def free_bytes() -> int:
    """The memory that is free, or could be, within the limits of a container."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:  # another system than Linux
        groups = ""
    return min([_free_of_machine(), *free_of_groups(groups, _CGROUPS)])


def _free_of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError):  # another system than Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_of_groups(groups: str, root: Path) -> Iterator[int]:
    """What each control group with a limit leaves.

    Args:
        groups: of a process, as /proc/self/cgroup has them.
        root: where they are mounted; in a container the innermost one may be mounted there.
    """
    for line in groups.splitlines():
        _, controller, path = line.split(":", 2)
        if controller in _LIMITS:
            mounted = root / controller
            inner = mounted / path.lstrip("/")
            for group in {inner, *inner.parents, mounted}:
                if group.is_relative_to(mounted):
                    yield from _left(group, *_LIMITS[controller])


def _left(group: Path, limit: str, taken: str, droppable: str) -> Iterator[int]:
    """What a control group leaves; nothing without a limit."""
    try:
        most, used = (int((group / name).read_text(encoding="ascii")) for name in (limit, taken))
        stat = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):  # there is no such group, or it says `max`
        return
    parts = dict(line.split() for line in stat)
    yield max(0, most - used + int(parts.get(droppable, 0)))


def unpacked_bytes(report: Path) -> int:
    """The bytes of a file; of a folder with tables those of all, of a run's folder the largest."""
    try:
        if not report.is_dir():
            return _bytes(report)
        tables = [*report.glob("*.parquet"), *report.glob("*.arrow")]
        return sum(map(_bytes, tables)) or max(map(_bytes, report.iterdir()))
    except (OSError, ValueError):  # whoever opens it says so
        return 0


def _bytes(file: Path) -> int:
    return file.stat().st_size * (_PACKED if file.suffix in _PACKED_AS else 1)


_SMALL_BYTES: Final = 4_000_000
"""Reports up to so large, as SQLite, are analysed on one core: 3 MB with 25,000 kernels took 2.9 s
on two, and 2.1 s on one of them (2-core VM, 2026-11-28)."""

_THREADS: Final = "POLARS_MAX_THREADS"

_PROCESSOR: Final = 36
"""Which field it is in a thread's stat, after its name."""


def use_one_core_for(reports: Sequence[Path]) -> None:
    """Let polars use one thread, on the core of this one, where all reports are small, unless the
    user chose otherwise. Polars reads the setting when it loads.

    Their frames have some hundred rows. Polars hands most of them to a thread of its own: to wake
    another core for it takes 100 us, longer than to compute them, and on one core it takes 10 us.
    """
    if _THREADS in os.environ or "polars" in sys.modules:
        return
    known = reports and all(report.exists() for report in reports)
    if not known or sum(map(unpacked_bytes, reports)) > _SMALL_BYTES:
        return
    os.environ[_THREADS] = "1"
    with suppress(OSError):  # there is no /proc, or a sandbox forbids it
        if hasattr(os, "sched_setaffinity") and _most_cores_idle():
            os.sched_setaffinity(0, {_core()})


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _most_cores_idle() -> bool:
    """Whether half of the cores or more have nothing to do. Busy ones are awake, and others may be
    on the same core for good."""
    running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
    return int(running) <= max(1, usable_cores() // 2)


def _core() -> int:
    """The core that this thread runs on."""
    stat = Path("/proc/thread-self/stat").read_text(encoding="utf-8", errors="replace")
    return int(stat.rpartition(")")[2].split()[_PROCESSOR])
