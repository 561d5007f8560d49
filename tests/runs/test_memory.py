"""How much memory a report takes and there is, and what is done if that is not enough."""

from pathlib import Path

import pytest

from nsysflow.runs import memory
from nsysflow.runs.memory import (
    free_bytes,
    free_of_groups,
    is_large,
    needed_bytes,
    room_bytes,
    scratch_for,
)

GB = 10**9


def sized(file: Path, size: int) -> Path:
    with file.open("wb") as out:
        out.truncate(size)
    return file


@pytest.mark.parametrize(
    ("needed", "free", "large"),
    [
        (6 * GB, 16 * GB, False),
        (6 * GB + 1, 16 * GB, True),  # however much is free
        (2 * GB, 4 * GB, False),
        (2 * GB + 1, 4 * GB, True),  # more than half of what is free
    ],
)
def test_a_report_is_large_beside_memory_or_alone(needed: int, free: int, *, large: bool) -> None:
    assert is_large(needed, free) == large


def test_a_report_needs_six_times_its_bytes_and_ten_times_more_packed(tmp_path: Path) -> None:
    assert needed_bytes(sized(tmp_path / "a.sqlite", GB)) == 6 * GB + GB // 5
    assert needed_bytes(sized(tmp_path / "a.sqlite.xz", GB)) == 60 * GB + GB // 5
    assert needed_bytes(tmp_path / "gone.sqlite") == GB // 5
    # a run needs what its report needs, and a parquetdir what all of its tables need
    folder = tmp_path / "run"
    folder.mkdir()
    assert needed_bytes(folder) == GB // 5
    sized(folder / "program.log", GB // 2)
    sized(folder / "report.sqlite", GB)
    assert needed_bytes(folder) == 6 * GB + GB // 5
    for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"):
        sized(folder / f"{name}.parquet", 2 * GB)
    assert needed_bytes(folder) == 24 * GB + GB // 5


def limited(group: Path, names: tuple[str, str], most: str, stat: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    (group / names[0]).write_text(f"{most}\n")
    (group / names[1]).write_text("600\n")
    (group / "memory.stat").write_text(f"anon 7\n{stat} 100\n")


NEW, OLD = ("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")


def test_a_group_leaves_what_it_may_take_and_what_the_kernel_can_drop(tmp_path: Path) -> None:
    limited(tmp_path / "user" / "me", NEW, "1000", "inactive_file")
    assert [*free_of_groups("0::/user/me\n", tmp_path)] == [500]
    limited(tmp_path / "user", NEW, "800", "inactive_file")  # the groups around it count too
    assert sorted(free_of_groups("0::/user/me\n", tmp_path)) == [300, 500]
    limited(tmp_path / "user", NEW, "max", "inactive_file")
    assert [*free_of_groups("0::/user\n1:name=systemd:/\n", tmp_path)] == []


def test_in_a_container_the_innermost_group_is_where_all_are_mounted(tmp_path: Path) -> None:
    limited(tmp_path / "memory", OLD, "1000", "total_inactive_file")
    assert [*free_of_groups("5:devices:/x\n4:memory:/docker/0123\n", tmp_path)] == [500]
    assert free_bytes() > 0  # on this machine


def test_a_large_report_uses_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = sized(tmp_path / "a.sqlite", GB)
    monkeypatch.setattr(memory, "free_bytes", lambda: 8 * GB)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scratch = scratch_for(report, low_memory=False)
    assert scratch is not None
    assert scratch.folder.is_relative_to(tmp_path / "cache")
    assert scratch.folder.is_dir()
    assert scratch.room_bytes == room_bytes(8 * GB)


@pytest.mark.parametrize(("free", "room"), [(0, 0), (12 * GB, 2 * GB), (60 * GB, 7 * GB // 2)])
def test_a_large_report_takes_some_of_the_free_memory_but_never_all(free: int, room: int) -> None:
    assert room_bytes(free) == room
