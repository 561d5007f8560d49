"""Triton's interpreter: kernels are tested in it if there is no GPU."""

import os
from importlib.util import find_spec
from types import FunctionType
from typing import Any

import torch


def interpret_without_gpu() -> None:
    """Run Triton kernels in the interpreter if there is no GPU. Call before importing Triton."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"
        _make_cheaper()


def _make_cheaper() -> None:
    """Leave out what the interpreter computes in vain.

    - Each launch replaces functions of triton.language by interpreted ones. Each call of a
      `@triton.jit` function inside the kernel tries to replace them again, which changes nothing
      but takes over a millisecond: a sixth of the CPU time of tests/kernels (Triton 3.9,
      2026-11-22).
    - It computes whether each sum of integers overflows, and drops the answer, as its option
      `debug` is off: a third (2026-12-01).
    - It makes a table of all types for each number: a fourteenth.
    """
    if find_spec("triton") is None:
        return
    import triton.language as tl
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):
        return  # another version of Triton: slower tests
    patch, dtype_of = interpreter._patch_lang, interpreter._get_np_dtype
    known: dict[str, Any] = {}

    def patch_once(function: FunctionType) -> Any:
        names = function.__globals__.values()
        languages = [each for each in names if each is tl or each is tl.core]
        if languages and not any(tl.core.is_builtin(each.load) for each in languages):
            return interpreter._LangPatchScope()  # already replaced, nothing to restore
        return patch(function)

    def known_dtype(of: Any) -> Any:
        name = of.scalar.name
        if name not in known:
            known[name] = dtype_of(of)
        return known[name]

    interpreter._patch_lang, interpreter._get_np_dtype = patch_once, known_dtype
    options = interpreter.InterpreterOptions(sanitize_overflow=False)
    interpreter.interpreter_builder.options = options
