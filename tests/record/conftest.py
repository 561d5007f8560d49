"""A machine with a GPU and a fake nsys."""

from pathlib import Path
from typing import Final

import pytest

from nsysflow.record.machine import Gpus
from tests.nsys.fakes import script
from tests.record.fake import fake_nsys, fake_torchrun

H200: Final = Gpus(names=("NVIDIA H200",), driver="580.159", cuda=(13, 0))


@pytest.fixture
def machine_with_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200, a fake nsys named by `$NSYSFLOW_NSYS`, and an empty working folder."""
    monkeypatch.setattr("nsysflow.record.machine.gpus", lambda: H200)
    monkeypatch.setenv("NSYSFLOW_NSYS", str(fake_nsys(tmp_path)))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Words that start two ranks of a program that is not Python."""
    fake_torchrun(tmp_path, monkeypatch)
    return ("--nproc", "2", "--", str(script(tmp_path / "train.sh", "echo epoch 1")))
