"""Compile Triton kernels for an H200, or another GPU, on a machine without one.

The interpreter accepts more than the compiler does, and it does not show registers.
"""

import atexit
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from nsysflow.kernels.arguments import TRITON_TYPES

BF16: Final = torch.bfloat16

SHARED_BYTES_MAX: Final = 227 * 1024
"""Shared memory per program on sm_90; https://docs.nvidia.com/cuda/hopper-tuning-guide."""

TYPES: Final = {dtype: each.name for dtype, each in TRITON_TYPES.items()} | {
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float64: "fp64",
}
"""Triton's spelling of a dtype."""

COMPILE: Final = """
import importlib, json, sys
from pathlib import Path
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for line in sys.stdin:
    capability, module, name, arguments, options, cubin = json.loads(line)
    kernel = getattr(importlib.import_module(module), name)
    options |= dict(zip(kernel.arg_names, arguments))
    types, constants, aligned = {}, {}, {}
    for param in kernel.params:
        value = options.pop(param.name)
        special = not param.do_not_specialize
        if isinstance(value, str) and value.startswith("*"):
            kind = value
        elif param.is_constexpr or value is None or value == 1 and special:
            kind = "constexpr"
            constants[param.name] = tl.dtype(value) if isinstance(value, str) else value
        elif isinstance(value, float):
            kind = "fp32"
        else:
            kind = "i32" if value < 2**31 else "i64"
        if kind.startswith("*") or kind.startswith("i") and special and value % 16 == 0:
            aligned[(param.num,)] = [["tt.divisibility", 16]]
        types[param.name] = kind
    source = ASTSource(kernel, types, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    Path(cubin).write_bytes(compiled.asm["cubin"])
    print(json.dumps([compiled.asm["ptx"], compiled.metadata.shared]), flush=True)
"""
"""Specialises arguments as a launch does; a pointer is aligned like torch's tensors."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled kernel.

    Attributes:
        ptx: its assembly, before ptxas.
        shared_bytes: shared memory per program, at most `SHARED_BYTES_MAX`.
        registers: registers per thread.
        local_bytes: stack and local memory per thread: what does not fit into registers.
    """

    ptx: str
    shared_bytes: int
    registers: int
    local_bytes: int

    @property
    def loads(self) -> Counter[str]:
        """The number of global loads by width, e.g. `v4.b32`."""
        return Counter(re.findall(r"ld\.global(?:\.L\d::\w+)*\.(v\d\.b\d+|b\d+)", self.ptx))


def shaped(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """A tensor that has only a shape and a dtype, of which a kernel is compiled but not run."""
    return torch.empty(shape, dtype=dtype, device="meta")


def compiled_for_hopper(call: Callable[[], object], **changed: object) -> dict[str, Compiled]:
    """The kernels that a call launches, by name, compiled for sm_90; see `compiled_for`."""
    return compiled_for(90, call, **changed)


def compiled_for(
    capability: int, call: Callable[[], object], **changed: object
) -> dict[str, Compiled]:
    """The kernels that a call launches, by name, compiled in another process: this one may use the
    interpreter.

    Args:
        capability: the compute capability times ten.
        call: a call with `shaped` tensors; nothing runs.
        changed: constants that are others on a GPU.

    Raises:
        CalledProcessError: one does not compile; the reason is on stderr.
    """
    launches: list[tuple[str, str, list[object], dict[str, object]]] = []

    def record(kernel: Any, *arguments: object, grid: Any, warmup: bool, **options: object) -> None:
        options |= {name: value for name, value in changed.items() if name in kernel.arg_names}
        written = {name: _as_json(value) for name, value in options.items()}
        named = kernel.fn.__module__, kernel.fn.__name__
        launches.append((*named, [*map(_as_json, arguments)], written))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpretedFunction, "run", record)
        patch.setattr(JITFunction, "run", record)
        call()
    return {launch[1]: _compiled(capability, *launch) for launch in launches}


def _as_json(value: object) -> object:
    if isinstance(value, Tensor):
        return f"*{TYPES[value.dtype]}"
    return value.name if isinstance(value, tl.dtype) else value


def _compiled(*launch: object) -> Compiled:
    compiler = _compiler()
    assert compiler.stdin is not None
    assert compiler.stdout is not None
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        print(json.dumps([*launch, str(cubin)]), file=compiler.stdin, flush=True)
        answer = compiler.stdout.readline()
        if not answer:
            _compiler.cache_clear()
            raise subprocess.CalledProcessError(compiler.wait(), compiler.args)
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        argv = [str(tool), "-res-usage", str(cubin)]
        usage = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    ptx, shared_bytes = json.loads(answer)
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    spilt = used["STACK"] + used["LOCAL"]
    return Compiled(ptx=ptx, shared_bytes=shared_bytes, registers=used["REG"], local_bytes=spilt)


@cache
def _compiler() -> "subprocess.Popen[str]":
    """The process that compiles all kernels: importing torch and Triton takes 1.4 s."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    argv = [sys.executable, "-c", COMPILE]
    compiler = subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(compiler.communicate)
    return compiler
