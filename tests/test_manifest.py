"""A run's directory is known by its manifest, if that may be read."""

import pytest

from nsysflow.errors import ReportError
from nsysflow.manifest import FILE, read_manifest
from tests.unprivileged import unprivileged


def test_a_folder_that_may_not_be_entered_is_no_run() -> None:
    with unprivileged() as folder:
        (folder / "run").mkdir(mode=0)
        assert read_manifest(folder / "run") is None


def test_a_manifest_that_may_not_be_read_is_not_passed_over() -> None:
    with unprivileged() as folder:
        (folder / FILE).touch(mode=0)
        with pytest.raises(ReportError, match=f"chmod u\\+r {folder / FILE}"):
            read_manifest(folder)
