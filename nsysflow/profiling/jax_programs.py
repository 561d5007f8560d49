"""Programs with JAX, of which nsys 2025.3 loses the events when it records backtraces."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from nsysflow.profiling.request import Request

_IMPORTS: Final = re.compile(r"^\s*(?:import|from)\s+(?:jax|flax|equinox|haiku)\b", re.MULTILINE)


def without_backtraces_of_jax(request: Request) -> tuple[Request, tuple[str, ...]]:
    """The request, without default backtraces where the script imports JAX, and a note on it."""
    script = next((word for word in request.command if word.endswith(".py")), None)
    if request.backtrace is not None or script is None or not _imports_jax(script):
        return request, ()
    note = (
        f"{script} imports JAX, so lines of CUDA calls are not recorded: with them nsys 2025.3"
        " loses events of JAX. To record them all the same: --backtrace waits"
    )
    return replace(request, backtrace="none"), (note,)


def _imports_jax(script: str) -> bool:
    """Whether it does so itself; what it imports is not looked at."""
    try:
        text = Path(script).read_text(errors="replace")
    except OSError:  # the program will say so
        return False
    return _IMPORTS.search(text) is not None
