import subprocess
import sys
from pathlib import Path

import pytest

from nsysflow.base.errors import UnknownWorkload
from nsysflow.catalog.catalog import (
    Kernel,
    Workload,
    dtypes,
    find,
    find_variant,
    kernels,
    variants,
    workloads,
)
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
def test_a_kernel_has_a_problem_a_test_and_the_variants_of_its_files(kernel: Kernel) -> None:
    assert kernel.name in stems(ROOT / "kernels" / "bench" / "problems")
    tested = {stem.removeprefix("test_") for stem in stems(ROOT / "tests" / "kernels")}
    assert kernel.name in tested | COMBINED | {"copy"}
    assert [name for name in variants() if name in kernel.variants] == [*kernel.variants]
    assert [name for name in dtypes() if name in kernel.dtypes] == [*kernel.dtypes]
    assert kernel.variants[0] == "ref"
    source = ROOT / "kernels" / "csrc" / f"{kernel.name}.cu"
    assert source.exists() == ("cuda" in kernel.variants)


def test_every_summary_is_one_short_line() -> None:
    shown = [kernel.summary for kernel in kernels()]
    shown += [workload.summary for workload in workloads()]
    shown += [variant.summary for workload in workloads() for variant in workload.variants]
    for line in (*shown, *variants().values(), *dtypes().values()):
        assert line
        assert "\n" not in line
        assert len(line) < 80, line


@pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)
def test_the_default_is_one_of_the_variants(workload: Workload) -> None:
    assert find_variant(workload, None).name == workload.default


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(UnknownWorkload, match=r"'nan_chek'.*Did you mean nan_check\?"):
        find("nan_chek")
    with pytest.raises(UnknownWorkload, match=r"'grapf'.*Did you mean graph\?"):
        find_variant(find("launch_bound"), "grapf")


def test_without_a_similar_name_the_first_are_listed_and_the_command_for_all() -> None:
    with pytest.raises(UnknownWorkload) as raised:
        find("x")
    said = str(raised.value)
    assert all(workload.name in said for workload in workloads()[:8])
    assert said.endswith("more; nsysflow list shows all")


def test_reading_the_catalog_imports_only_the_catalog() -> None:
    code = (
        "import sys; from nsysflow.catalog import kernels, workloads; kernels(); workloads()\n"
        "print(*sorted(name for name in sys.modules if name in ('click', 'torch', 'polars')"
        " or name.startswith(('nsysflow.workloads', 'nsysflow.kernels'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
