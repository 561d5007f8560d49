"""The catalog says of the workloads what the code does."""

import inspect
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from nsysflow import catalog
from nsysflow.catalog import Workload, find, find_variant, workloads
from nsysflow.errors import UnknownWorkload
from nsysflow.regions import Region
from nsysflow.workloads.phases import Own

each = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)


@each
def test_options_are_those_of_the_code(workload: Workload) -> None:
    options = import_module(f"nsysflow.workloads.{workload.name}").Options
    in_code = {field.name: field.type for field in fields(options)}
    assert in_code == {option.name: type(option.default) for option in workload.options}
    assert in_code == {option.name: type(option.toy) for option in workload.options}


@each
def test_the_default_is_one_of_the_variants(workload: Workload) -> None:
    assert find_variant(workload, None).name == workload.default


@each
def test_phases_come_from_the_vocabulary_or_are_the_workloads_own(workload: Workload) -> None:
    assert set(workload.phases) <= {*Region, *Own} - {Region.STEP, Own.REPLAY}


@each
def test_every_line_of_it_is_one_line(workload: Workload) -> None:
    lines = [workload.summary, *(variant.summary for variant in workload.variants)]
    assert all(line and "\n" not in line and len(line) < 80 for line in lines)


def test_every_module_with_options_is_a_workload_of_the_catalog() -> None:
    folder = Path(catalog.__file__).parent / "workloads"
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    with_options = {
        name
        for name in modules
        if inspect.isclass(getattr(import_module(f"nsysflow.workloads.{name}"), "Options", None))
    }
    assert with_options == {workload.name for workload in workloads()}


def test_a_name_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(UnknownWorkload, match=r"'nan_chek'.*Did you mean nan_check\?"):
        find("nan_chek")
    with pytest.raises(UnknownWorkload, match=r"'grapf'.*Did you mean graph\?"):
        find_variant(find("launch_bound"), "grapf")


def test_a_name_far_from_all_is_answered_with_all() -> None:
    with pytest.raises(UnknownWorkload) as raised:
        find("x")
    assert all(workload.name in str(raised.value) for workload in workloads())


def test_reading_the_catalog_imports_neither_torch_nor_a_workload() -> None:
    code = (
        "import sys; from nsysflow.catalog import workloads; workloads()\n"
        "print(*sorted(name for name in sys.modules"
        " if name in ('torch', 'polars') or name.startswith('nsysflow.workloads')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
