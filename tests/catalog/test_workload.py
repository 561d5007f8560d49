"""The catalog of workloads is consistent, and an unknown name gets a helpful answer."""

import subprocess
import sys

import pytest

from nsysflow.base.errors import UnknownWorkload
from nsysflow.catalog import Workload, find, find_variant, workloads

each = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)


@each
def test_the_default_is_one_of_the_variants(workload: Workload) -> None:
    assert find_variant(workload, None).name == workload.default


@each
def test_every_summary_is_one_short_line(workload: Workload) -> None:
    lines = [workload.summary, *(variant.summary for variant in workload.variants)]
    assert all(line and "\n" not in line and len(line) < 80 for line in lines)


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
