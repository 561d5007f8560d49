"""The environment says who profiles a process."""

import pytest

from nsysflow.runtime.collectors import attached_collector


@pytest.mark.parametrize(
    ("environ", "collector"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None),
        ({"NSYS_PROFILING_SESSION_ID": "17"}, "nsys"),
        ({"NVTX_INJECTION64_PATH": "libToolsInjection64.so"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "nsys"}, "nsys"),
        ({"NSYSFLOW_COLLECTOR": "kineto"}, "kineto"),
        ({"NSYSFLOW_COLLECTOR": "kineto", "NSYS_PROFILING_SESSION_ID": "17"}, "kineto"),
    ],
)
def test_the_environment_says_who_profiles(environ: dict[str, str], collector: str | None) -> None:
    assert attached_collector(environ) == collector
