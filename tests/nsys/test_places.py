"""The places to look for an nsys come from the environment."""

import tempfile
from pathlib import Path

import pytest

from nsysflow.nsys import Places


def test_without_a_home_the_cache_is_in_the_temporary_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert Places.here().cache == Path(tempfile.gettempdir()) / ".cache/nsysflow"


def test_this_machines_places_come_from_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NSYSFLOW_NSYS", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    here = Places.here()
    assert (here.named, here.root, here.cuda_home) == (None, Path("/"), Path("/opt/cuda"))
    assert here.cache == tmp_path / "nsysflow"
    monkeypatch.setenv("NSYSFLOW_NSYS", "/opt/nsys")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Places.here().named == "/opt/nsys"
    assert Places.here().cache == tmp_path / ".cache/nsysflow"
