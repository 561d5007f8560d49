"""What to do once the program has imported a module that it may never import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], None]


def when_imported(name: str, then: Then) -> None:
    """Call `then` with the module: now, or right after the program has imported it."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting:
    """The first of Python's finders until its module is found, which it finds as the others do."""

    def __init__(self, name: str, then: Then) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec is not None:
                self._call_when_run(spec.loader)
                return spec
        return None

    def _call_when_run(self, loader: Any) -> None:  # noqa: ANN401
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # from here on the loader is as it was
            loader.exec_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then(module)

        loader.exec_module = exec_module
