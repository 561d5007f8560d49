"""Tells when a program has imported a module, so that torch is annotated as soon as it is there.

Every Python of the program reads this file when it starts, so it imports nothing that Python has
not loaded by then, not even `__future__`. It never imports torch, and prints nothing: what becomes
of it is left as files in the run's folder.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Callable, Optional

    Spec = Optional[ModuleSpec]
    Then = Callable[[ModuleType], None]

ANNOTATE = "NSYSFLOW_ANNOTATE"
RUN_FOLDER = "NSYSFLOW_RUN_FOLDER"
"""Two variables of `protocol.py`, which says what they are; it imports too much for this file."""

HOOKED = "hooked.txt"
ANNOTATED = "annotated.txt"
NOT_ANNOTATED = "not-annotated.txt"
"""Files in the run's folder: this hook was in a Python process, torch was annotated in one, or that
failed and why. `nsysflow profile` takes them away at the end."""

_COMPILE_WORKER = os.path.join("_inductor", "compile_worker")
"""In the path of the program that compiles for Inductor: nothing of the user's runs in it."""

_IMPORT_SYSTEM = "<frozen importlib._bootstrap_external>"


def install(environ: "Mapping[str, str]", annotate: "Then") -> None:
    """Wait for torch in this process, if `nsysflow profile` wants it annotated.

    Args:
        environ: the variables of this process.
        annotate: is called with torch once it is imported.
    """
    if environ.get(ANNOTATE) != "1" or _COMPILE_WORKER in "".join(sys.argv[:1]):
        return
    _leave(HOOKED)
    when_imported("torch", _reporting(annotate))  # a .pth file may have imported it already


def when_imported(name: str, then: "Then") -> None:
    """Call `then` with a module: now, or right after the program has imported it."""
    module = sys.modules.get(name)
    if module is None:
        sys.meta_path.insert(0, _Waiting(name, then))
    else:
        then(module)


class _Waiting:
    """The first of Python's finders, until a module is imported. It finds the module as the others
    do, and tells when it has run."""

    def __init__(self, name: str, then: "Then") -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "Spec":
        if name != self._name:
            return None
        for finder in [other for other in sys.meta_path if other is not self]:
            find = getattr(finder, "find_spec", None)
            spec: Spec = find and find(name, path, target)
            if spec is not None:
                if spec.loader is not None:  # else it is a mere folder of that name
                    self._tell_when_run(spec.loader)
                return spec
        return None

    def _tell_when_run(self, loader: "Any") -> None:  # of any kind
        """Annotate what this loader runs next; then the loader is as it was."""

        def exec_module(module: "ModuleType") -> None:
            vars(loader).pop("exec_module", None)
            loader.exec_module(module)
            if module.__name__ == self._name and self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then(module)

        # else the traceback of a module that cannot be imported would show Python's import system
        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORT_SYSTEM)
        loader.exec_module = exec_module


def _reporting(annotate: "Then") -> "Then":
    """`annotate`, which then leaves a file that says whether it did, and raises nothing."""

    def annotate_and_report(torch: "ModuleType") -> None:
        try:
            annotate(torch)
        except Exception as error:  # whatever it is, the program goes on
            _leave(NOT_ANNOTATED, f"{type(error).__name__}: {error}")
        else:
            _leave(ANNOTATED)

    return annotate_and_report


def _leave(name: str, text: str = "") -> None:
    folder = os.environ.get(RUN_FOLDER)
    if folder:
        try:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        except OSError:  # a missing or full folder must not stop the program
            pass
