"""The flame graph for speedscope."""

from typing import Literal

import msgspec
import polars as pl

from nsysflow.report.flamegraph import SCHEMA, speedscope
from tests.report.flamegraph.stacks import ROWS, hostile_stacks, idle_stacks
from tests.report.handmade import MS


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """Part of speedscope's file format 1.25, as far as it concerns sampled profiles."""


class Frame(_Strict):
    name: str
    file: str | None = None
    line: int | None = None
    col: int | None = None


class Shared(_Strict):
    frames: list[Frame]


class Profile(_Strict):
    type: Literal["sampled"]
    name: str
    unit: Literal["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
    startValue: int
    endValue: int
    samples: list[list[int]]
    weights: list[int]


class File(_Strict):
    schema: str = msgspec.field(name="$schema")
    shared: Shared
    profiles: list[Profile]
    name: str
    activeProfileIndex: int
    exporter: str


def read(text: str) -> File:
    return msgspec.json.decode(text, type=File)


def scoped(stacks: pl.DataFrame) -> File:
    return read(speedscope(stacks, "run.sqlite"))


def weights(file: File, profile: int = 0) -> dict[tuple[str, ...], int]:
    """The idle time of each stack of a profile, by the names of its frames."""
    of = file.profiles[profile]
    names = [frame.name for frame in file.shared.frames]
    stacks = [tuple(names[index] for index in sample) for sample in of.samples]
    return dict(zip(stacks, of.weights, strict=True))


def test_the_file_is_one_that_speedscope_reads() -> None:
    file = scoped(idle_stacks(*ROWS))
    assert file.schema == SCHEMA == "https://www.speedscope.app/file-format-schema.json"
    assert file.exporter.startswith("nsysflow ")
    (profile,) = file.profiles
    assert len(profile.samples) == len(profile.weights)
    assert max(index for sample in profile.samples for index in sample) < len(file.shared.frames)


def test_weights_are_the_idle_time_and_sum_to_the_whole() -> None:
    file = scoped(idle_stacks(*ROWS))
    found = weights(file)
    assert found["step/data", "host code", "main", "collate", "tokenize"] == 60 * MS
    assert found["(outside ranges)", "host code", "main", "save"] == 15 * MS
    assert sum(found.values()) == file.profiles[0].endValue == 100 * MS


def test_a_function_that_also_calls_others_has_a_weight_of_its_own() -> None:
    found = weights(scoped(idle_stacks(*ROWS, ("step/data", "host", ("main (train.py:9)",), 7))))
    assert found["step/data", "host code", "main"] == 7 * MS


def test_a_frame_has_its_file_and_the_line_that_took_longest() -> None:
    frames = {frame.name: frame for frame in scoped(idle_stacks(*ROWS)).shared.frames}
    assert (frames["tokenize"].file, frames["tokenize"].line) == ("tok.py", 4)
    assert (frames["step/data"].file, frames["step/data"].line) == (None, None)


def test_each_report_is_a_profile() -> None:
    two = pl.concat([idle_stacks(*ROWS), idle_stacks(ROWS[0], report="rank1.sqlite")])
    file = scoped(two)
    assert [profile.name for profile in file.profiles] == ["run.sqlite", "rank1.sqlite"]
    assert [profile.endValue for profile in file.profiles] == [100 * MS, 60 * MS]


def test_hostile_names_stay_as_they_are() -> None:
    stacks = hostile_stacks()
    found = {sample[-1] for sample in weights(scoped(stacks))}
    assert found == set(stacks["stack"].list.last())
