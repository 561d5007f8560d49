"""Python is sampled where this nsys can, and a note or an error says why it is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.base.errors import CaptureError
from nsysflow.profiling.request import Request
from nsysflow.profiling.sampling import DEFAULT_HZ, with_sampling
from tests.nsys.fakes import an_nsys
from tests.profiling.fake import command, profiled

NEW = an_nsys(Path("/opt/nsys"), "--python-sampling", "--include-json")
OLD = an_nsys(Path("/opt/nsys"), "--python-sampling")
"""With the options of 2023.4, which samples Python and cannot export the frames."""
ASKED = Request(command=("python", "train.py"), name="train", folder=Path("out"))


def sampled(asked: int | None) -> Request:
    return replace(ASKED, sample_python=asked)


def test_an_nsys_that_can_sample_does_by_default() -> None:
    assert with_sampling(sampled(None), NEW) == (sampled(DEFAULT_HZ), ())
    assert with_sampling(sampled(50), NEW) == (sampled(50), ())


def test_off_is_off_without_a_word() -> None:
    for nsys in (NEW, OLD, None):
        assert with_sampling(sampled(0), nsys) == (sampled(0), ())


def test_an_nsys_that_cannot_leaves_a_note() -> None:
    request, (note,) = with_sampling(sampled(None), OLD)
    assert request.sample_python == 0
    assert "2025.3.1" in note
    assert "nsysflow doctor" in note


def test_what_was_asked_for_and_cannot_be_done_is_refused() -> None:
    with pytest.raises(CaptureError, match="--sample-python needs a newer nsys") as raised:
        with_sampling(sampled(1000), OLD)
    assert raised.value.command == "nsysflow doctor"


def test_torch_profiler_records_stacks_only_if_asked() -> None:
    assert with_sampling(sampled(None), None) == (sampled(0), ())
    assert with_sampling(sampled(1000), None) == (sampled(1000), ())


@pytest.mark.usefixtures("machine_with_gpu")
def test_a_settings_file_switches_samples_off() -> None:
    words = ("-o", "out", "--dry-run", *command())
    assert "--python-sampling-frequency=1000" in profiled(*words).stdout
    Path("nsysflow.toml").write_text("[profile]\nsample-python = 0\n")
    assert "--python-sampling" not in profiled(*words).stdout
