"""Takes CUPTI, with which nsys records CUDA, out of this process once nsys records no more.

CUPTI slows each CUDA call of a process until nsys leaves, which may be many seconds after the
recording has ended: nsys writes its report first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from nsysflow.runtime.captures import synchronize, torch_on_gpu

MAPS: Final = Path("/proc/self/maps")
"""Where Linux lists the files that are mapped into this process."""

_INJECTION: Final = "libToolsInjection"
"""How the names of the libraries begin that nsys loads into a process; its CUPTI lies beside them.
torch has a CUPTI of its own, which is not ours to touch."""

_CUPTI: Final = "libcupti.so"
_SUCCESS: Final = 0


def detach_cupti() -> bool:
    """Take nsys's CUPTI out of this process; False if there is none, or it stays.

    Called only once nsys has collected what it recorded: then it calls CUPTI no more, and no buffer
    of it holds anything that the report lacks. On an H100, nsys 2025.3 wrote whole reports of
    processes that did so, even without having been stopped before, and such a process ended as
    usual (2026-11-25). Not known is what happens while other threads launch work: so the GPU has
    finished all of torch's, and a process that uses CUDA in another way is left alone.
    """
    if sys.platform != "linux" or torch_on_gpu() is None:
        return False
    cupti = _cupti_of_nsys()
    if cupti is None:
        return False
    import ctypes  # takes 10 ms: not at the start of each profiled program

    try:
        finalize = ctypes.CDLL(cupti, mode=os.RTLD_NOLOAD).cuptiFinalize
    except (OSError, AttributeError):  # unloaded meanwhile, or of another kind
        return False
    synchronize()
    return bool(finalize() == _SUCCESS)


def _cupti_of_nsys() -> str | None:
    """The path of the CUPTI that nsys has loaded into this process."""
    try:
        with MAPS.open(encoding="utf-8", errors="surrogateescape") as maps:
            mapped = {Path(line.rstrip("\n").split(None, 5)[-1]) for line in maps}
    except OSError:
        return None
    folders = {file.parent for file in mapped if file.name.startswith(_INJECTION)}
    found = [f for f in sorted(mapped) if f.parent in folders and f.name.startswith(_CUPTI)]
    return str(found[0]) if found else None
