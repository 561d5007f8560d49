from pathlib import Path

import pytest

from nsysflow.base.errors import UnknownWorkload
from nsysflow.catalog.catalog import Kernel, dtypes, find, find_variant, kernels, variants
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


def test_a_similar_name_is_suggested() -> None:
    with pytest.raises(UnknownWorkload, match=r"'nan_chek'.*Did you mean nan_check\?"):
        find("nan_chek")
    with pytest.raises(UnknownWorkload, match=r"'grapf'.*Did you mean graph\?"):
        find_variant(find("launch_bound"), "grapf")
