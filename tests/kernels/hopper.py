"""Compile Triton kernels for an H200 on a machine without one.

The interpreter accepts more than the compiler does, and it does not show registers.
"""

import atexit
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SHARED_BYTES_MAX: Final = 227 * 1024
"""Shared memory per program on sm_90; https://docs.nvidia.com/cuda/hopper-tuning-guide."""

COMPILE: Final = """
import importlib, json, sys
from pathlib import Path
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

for line in sys.stdin:
    asked, cubin = json.loads(line)
    module = importlib.import_module("nsysflow.kernels." + asked["module"])
    kernel = getattr(module, asked["name"])
    types = {each: asked["types"].get(each, "constexpr") for each in kernel.arg_names}
    aligned = {
        (at,): [["tt.divisibility", 16]]
        for at, each in enumerate(kernel.arg_names)
        if types[each].startswith("*") or types[each].endswith(":16")
    }
    types = {each: type_.removesuffix(":16") for each, type_ in types.items()}
    constants = {
        each: getattr(tl, value) if isinstance(value, str) else value
        for each, value in asked["constants"].items()
    }
    source = ASTSource(kernel, types, constants, aligned)
    options = {"num_warps": asked["warps"], **asked["options"]}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    Path(cubin).write_bytes(compiled.asm["cubin"])
    print(json.dumps([compiled.asm["ptx"], compiled.metadata.shared]), flush=True)
"""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One specialisation of a `@triton.jit` function, with pointers aligned like torch's.

    Attributes:
        module: its module in nsysflow.kernels.
        name: its name in that module.
        types: the types of the arguments that are not constants, in Triton's spelling; `i32:16` is
            a multiple of 16.
        constants: the other arguments; a Triton type is given by its name.
        warps: warps per program.
        options: options of the launch, such as `launch_pdl`.
    """

    module: str
    name: str
    types: Mapping[str, str]
    constants: Mapping[str, int | str | None]
    warps: int
    options: Mapping[str, int | bool] = field(default_factory=dict)


def pointers(**tensors: str) -> dict[str, str]:
    """Types of arguments that point to these tensors: `pointers(bf16="x y", i64="rows")`."""
    return {f"{name}_ptr": f"*{kind}" for kind, names in tensors.items() for name in names.split()}


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
        return Counter(re.findall(r"ld\.global\.(v\d\.b\d+|b\d+)", self.ptx))


def compile_for_hopper(kernel: Kernel) -> Compiled:
    """A kernel compiled for sm_90, in another process: this one may use the interpreter.

    Raises:
        CalledProcessError: it does not compile; the reason is on stderr.
    """
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        ptx, shared_bytes = _compile(kernel, cubin)
        argv = [_tool("cuobjdump"), "-res-usage", str(cubin)]
        usage = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    return Compiled(
        ptx=ptx,
        shared_bytes=shared_bytes,
        registers=found["REG"],
        local_bytes=found["STACK"] + found["LOCAL"],
    )


def _compile(kernel: Kernel, cubin: Path) -> tuple[str, int]:
    """The assembly and the bytes of shared memory; the binary is written to `cubin`."""
    compiler = _compiler()
    assert compiler.stdin is not None
    assert compiler.stdout is not None
    print(json.dumps([asdict(kernel), str(cubin)]), file=compiler.stdin, flush=True)
    answer = compiler.stdout.readline()
    if not answer:
        _compiler.cache_clear()
        raise subprocess.CalledProcessError(compiler.wait(), compiler.args)
    ptx, shared_bytes = json.loads(answer)
    return ptx, shared_bytes


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


def _tool(name: str) -> str:
    """The path of a CUDA tool in Triton's wheel."""
    import triton

    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name)
