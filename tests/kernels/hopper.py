"""Compile Triton kernels for a Hopper GPU where there is none, and say what came out, as JSON.

Run as a program of its own: a process that interprets kernels cannot compile them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One specialisation of a kernel."""

    module: str
    """Of nsysflow.kernels."""
    name: str
    types: dict[str, str]
    """Of arguments, as Triton spells them; pointers are taken to be aligned to 16 bytes."""
    constants: dict[str, int]
    warps: int


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """What ptxas made of it."""

    registers: int
    local_bytes: int
    loads: dict[str, int]
    """Global loads in the PTX by their width: {"v4.b32": 3}."""


def compile_for_hopper(kernel: Kernel) -> Compiled:
    """Compile in a process of its own.

    Raises:
        subprocess.CalledProcessError: Triton refused the kernel.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.hopper"],
        cwd=ROOT,
        env=environment,
        input=json.dumps(asdict(kernel)),
        capture_output=True,
        check=True,
        text=True,
    )
    return Compiled(**json.loads(done.stdout))


def _compile(kernel: Kernel) -> Compiled:
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = getattr(importlib.import_module(f"nsysflow.kernels.{kernel.module}"), kernel.name)
    position = {name: at for at, name in enumerate(function.arg_names)}
    built = triton.compile(
        ASTSource(
            function,
            {name: kernel.types.get(name, "constexpr") for name in position},
            {(position[name],): value for name, value in kernel.constants.items()},
            {
                (position[name],): [["tt.divisibility", 16]]
                for name, type_ in kernel.types.items()
                if type_.startswith("*")
            },
        ),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": kernel.warps},
    )
    loads: dict[str, int] = {}
    for width in re.findall(r"ld\.global\.(v\d\.b\d+|b\d+)", built.asm["ptx"]):
        loads[width] = loads.get(width, 0) + 1
    usage = _resources(built.asm["cubin"])
    return Compiled(
        registers=int(usage["REG"]),
        local_bytes=int(usage["LOCAL"]) + int(usage["STACK"]),
        loads=loads,
    )


def _resources(cubin: bytes) -> dict[str, str]:
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [str(tools / "cuobjdump"), "-res-usage", file.name],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    return dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", told))


if __name__ == "__main__":
    print(json.dumps(asdict(_compile(Kernel(**json.load(sys.stdin))))))  # noqa: T201
