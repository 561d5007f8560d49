"""Annotates torch in a profiled program, with the program's own nsysflow or this one.

Every Python of the program reads this file when it starts, as it reads `nsysflow_hook.py`, so it
imports ours only once torch is there.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def annotate(torch: "ModuleType") -> None:
    """Give torch's functions ranges, and write the status file when the process ends."""
    _import_nsysflow()
    from nsysflow.runtime.auto import annotate
    from nsysflow.runtime.process import save_status_at_exit

    annotate(torch)
    save_status_at_exit()


def _import_nsysflow() -> None:
    """Import the program's own nsysflow, so that its ranges and ours are counted in one place; or
    this one, where the program's Python has none."""
    from importlib.util import find_spec, module_from_spec, spec_from_file_location

    if find_spec("nsysflow") is not None:
        return
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    init = os.path.join(folder, "__init__.py")
    spec = spec_from_file_location("nsysflow", init, submodule_search_locations=[folder])
    if spec is not None and spec.loader is not None:
        sys.modules["nsysflow"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["nsysflow"])
