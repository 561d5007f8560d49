"""A run on a full disk or a read-only one: a message, and no half manifest."""

from pathlib import Path

import pytest

from tests.disks import full_disk, names, read_only_disk
from tests.record.fake import command, profiled

pytestmark = pytest.mark.usefixtures("machine_with_gpu")


def test_a_read_only_disk_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with read_only_disk(tmp_path / "disk") as disk:
        done = profiled("-o", str(disk / "run"), *command())
        assert done.exit_code == 1
        assert "Read-only file system; nothing was run" in done.stderr
        assert names(disk) == []


def test_a_full_disk_leaves_no_manifest_and_says_what_to_do(tmp_path: Path) -> None:
    with full_disk(tmp_path / "disk") as disk:
        done = profiled("-o", str(disk / "run"), *command())
        assert done.exit_code == 1
        assert "No space left on device. Make room" in done.stderr
        assert "manifest.json" not in names(disk / "run")
