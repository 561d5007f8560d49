"""The catalog of kernels agrees with the code."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from nsysflow.catalog import Kernel, kernels
from nsysflow.catalog.kernel import dtypes, variants
from tests.reports import ROOT

each = pytest.mark.parametrize("kernel", kernels(), ids=lambda kernel: kernel.name)

COMBINED = {"rolloutcopy"}
"""A benchmark of several kernels, without a module."""


def stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}


def test_every_module_with_a_reference_is_in_the_catalog() -> None:
    names = {kernel.name for kernel in kernels()}
    fused = {
        path.stem
        for path in (ROOT / "kernels").glob("*.py")
        if f"def {path.stem}_ref(" in path.read_text()
    }
    assert names == fused | COMBINED | {"copy"}


@each
def test_a_kernel_has_a_problem_and_a_test_of_its_name(kernel: Kernel) -> None:
    assert kernel.name in stems(ROOT / "kernels" / "bench" / "problems")
    tested = {stem.removeprefix("test_") for stem in stems(ROOT / "tests" / "kernels")}
    assert kernel.name in tested | COMBINED | {"copy"}


@each
def test_variants_and_dtypes_are_declared_and_in_order(kernel: Kernel) -> None:
    assert [name for name in variants() if name in kernel.variants] == [*kernel.variants]
    assert [name for name in dtypes() if name in kernel.dtypes] == [*kernel.dtypes]
    assert kernel.variants[0] == "ref"


@each
def test_a_kernel_with_a_cu_file_has_the_variant_cuda(kernel: Kernel) -> None:
    source = ROOT / "kernels" / "csrc" / f"{kernel.name}.cu"
    assert source.exists() == ("cuda" in kernel.variants)


def test_every_summary_is_one_short_line() -> None:
    lines = [*(kernel.summary for kernel in kernels()), *variants().values(), *dtypes().values()]
    assert all(line and "\n" not in line and len(line) < 80 for line in lines)


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
def test_the_benchmark_has_the_variants_of_the_catalog() -> None:
    calls = import_module("nsysflow.kernels.bench.calls")
    assert get_args(calls.Variant) == tuple(variants())
