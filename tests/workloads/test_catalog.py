"""The catalog of workloads agrees with the code."""

import inspect
from dataclasses import fields
from importlib import import_module

import pytest

from nsysflow.catalog.catalog import Workload, workloads
from nsysflow.runtime.regions import Region
from nsysflow.workloads.common.phases import WorkloadRegion
from tests.reports import ROOT

each = pytest.mark.parametrize("workload", workloads(), ids=lambda workload: workload.name)


@each
def test_options_are_those_of_the_code(workload: Workload) -> None:
    options = import_module(f"nsysflow.workloads.{workload.name}").Options
    in_code = {field.name: field.type for field in fields(options)}
    assert in_code == {option.name: type(option.default) for option in workload.options}
    assert in_code == {option.name: type(option.toy) for option in workload.options}


@each
def test_phases_have_names_that_are_declared(workload: Workload) -> None:
    assert set(workload.phases) <= {*Region, *WorkloadRegion} - {Region.STEP, WorkloadRegion.REPLAY}


def test_every_module_is_a_workload_of_the_catalog() -> None:
    folder = ROOT / "workloads"
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert modules == {workload.name for workload in workloads()}
    for name in modules:
        module = import_module(f"nsysflow.workloads.{name}")
        assert inspect.isclass(module.Options)
        assert inspect.isfunction(getattr(module, name))
