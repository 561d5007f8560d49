"""The label of a copy, on traces of a few rows."""

import pytest

from tests.tiny import Row, call, copy, launch, timeline_of

US = 1_000


def label(*more: Row, source: str = "pinned", returned: int = 10) -> str | None:
    """The label of a copy to the device from 20 to 100, whose call returned at `returned`."""
    rows = (
        launch(0, returned, 1, name="cudaMemcpyAsync"),
        copy(20, 100, 1, "HtoD", source, "device"),
    )
    found: str | None = timeline_of(*rows, *more).copies["copy_label"].item()
    return found


@pytest.mark.parametrize("source", ["pinned", "pageable"])
def test_a_label_names_the_host_memory_and_whether_the_call_outlasted_the_copy(source: str) -> None:
    assert label(source=source) == f"{source}_async"
    assert label(source=source, returned=100) == f"{source}_blocking"


def test_a_sync_within_50_us_of_the_call_makes_it_blocking() -> None:
    assert label(call(10 + 50 * US, 60 * US, "cudaStreamSynchronize")) == "pinned_blocking"
    assert label(call(11 + 50 * US, 60 * US, "cudaStreamSynchronize")) == "pinned_async"


def test_another_launch_before_the_sync_leaves_it_asynchronous() -> None:
    wait = call(10 * US, 20 * US, "cudaStreamSynchronize")
    assert label(launch(US, 2 * US, 2), wait) == "pinned_async"
    assert label(call(US, 2 * US, "cudaEventQuery"), wait) == "pinned_blocking"


def test_a_copy_within_the_device_has_no_host_side() -> None:
    assert label(source="device") == "device"


def test_a_copy_without_a_call_has_no_label() -> None:
    (found,) = timeline_of(copy(20, 30, None, "HtoD", "pinned", "device")).copies["copy_label"]
    assert found is None
