"""The idle flame graph."""

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal
from xml.etree import ElementTree

import msgspec
import polars as pl
import pytest

import nsysflow
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import SelectionError
from nsysflow.report.flamegraph import (
    MARGIN,
    SCHEMA,
    WIDTH,
    Box,
    Heading,
    boxes,
    draw,
    speedscope,
    svg,
)
from tests import tiny
from tests.analyses import run_of
from tests.report.handmade import MS, Handmade, Results, frame, renamed
from tests.report.sight import contrast
from tests.reports import DATA

TOKENIZE: Final = ("main (train.py:9)", "collate (train.py:88)", "tokenize (tok.py:4)")
SAVE: Final = ("main (train.py:12)", "save (torch/x.py:7)")
NOTHING: Final = ("(not sampled)",)

OWN: Final = frozenset({"train.py", "tok.py"})
"""The files of the program itself."""

Row = tuple[str, str, tuple[str, ...], int]
"""Phase, cause, the stack and ms of idle time."""

ROWS: Final[tuple[Row, ...]] = (
    ("step/data", "host", TOKENIZE, 60),
    ("step/data", "host", (*TOKENIZE[:2], "pad (train.py:90)"), 20),
    ("step/data", "launch", NOTHING, 5),
    ("", "host", SAVE, 15),
)

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</title></svg>",
    "\"quotes' & <![CDATA[ ]]>",
    "x" * 5_000,
    "\u202eevil\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "two\nlines\x00\x1b[31m",
    "",
)
"""Names that a program may choose for its functions and files."""


def idle_stacks(*rows: Row, report: str = "run.sqlite") -> pl.DataFrame:
    """IDLE_STACKS of these rows."""
    columns = ("report", "phase", "cause", "stack", "idle_ns")
    filled = ((report, phase, cause, [*stack], ms * MS) for phase, cause, stack, ms in rows)
    return frame("idle_stacks", *(dict(zip(columns, row, strict=True)) for row in filled))


def hostile_stacks() -> pl.DataFrame:
    """Stacks of functions, files, phases and a report with hostile names."""
    rows = [(name, "host", (f"{name} ({name}:1)", name), 1) for name in HOSTILE]
    return idle_stacks(*rows, report=HOSTILE[0])


def at(root: Box, *names: str) -> Box:
    """The box that is reached by these names."""
    for name in names:
        (root,) = (each for each in root.children.values() if each.place.name == name)
    return root


def every(box: Box) -> list[Box]:
    return [box, *(below for child in box.children.values() for below in every(child))]


def test_a_stack_lies_below_its_phase_and_cause() -> None:
    root = boxes(idle_stacks(*ROWS))
    found = at(root, "step/data", "host code", "main", "collate", "tokenize")
    assert (root.ns, found.ns) == (100 * MS, 60 * MS)
    assert (found.place.file, found.line) == ("tok.py", 4)


def test_a_box_is_as_wide_as_all_below_it_and_what_ran_in_itself() -> None:
    root = boxes(idle_stacks(*ROWS, ("step/data", "host", ("main (train.py:9)",), 7)))
    main = at(root, "step/data", "host code", "main")
    assert main.ns == 87 * MS
    assert sum(child.ns for child in main.children.values()) == 80 * MS
    assert all(box.ns >= sum(child.ns for child in box.children.values()) for box in every(root))


def test_lines_of_one_function_share_a_box_with_the_line_that_took_longest() -> None:
    rows = [("step", "host", (f"main (train.py:{line})",), ms) for line, ms in ((9, 1), (12, 2))]
    main = at(boxes(idle_stacks(*rows)), "step", "host code", "main")
    assert (main.ns, main.line) == (3 * MS, 12)


def test_functions_of_one_name_in_two_files_are_two_boxes() -> None:
    rows = [("step", "host", (f"forward ({file}:1)",), 1) for file in ("a.py", "b.py")]
    assert len(at(boxes(idle_stacks(*rows)), "step", "host code").children) == 2


def test_a_box_says_whose_code_it_is() -> None:
    root = boxes(idle_stacks(*ROWS, ("step", "launch", ("aten::normal_",), 1)), OWN)
    kinds = {box.place.name: box.place.kind for box in every(root)}
    assert (kinds["tokenize"], kinds["save"]) == ("own", "library")
    assert (kinds["(not sampled)"], kinds["aten::normal_"]) == ("unknown", "library")
    assert kinds["(outside ranges)"] == "phase"


def test_reports_have_boxes_only_where_there_are_several() -> None:
    one = idle_stacks(("step", "host", NOTHING, 1))
    two = pl.concat([one, idle_stacks(("step", "host", NOTHING, 2), report="rank1.sqlite")])
    assert [box.place.name for box in boxes(two).widest_first] == ["rank1.sqlite", "run.sqlite"]
    assert [box.place.kind for box in boxes(one).widest_first] == ["phase"]


def test_a_stack_of_a_thousand_calls_is_no_problem() -> None:
    deep = tuple(f"f (a.py:{line})" for line in range(1_000))
    root, depth = boxes(idle_stacks(("step", "host", deep, 1))), 0
    while root.children:
        (root,), depth = root.children.values(), depth + 1
    assert depth == 1_002


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


SVG: Final = "{http://www.w3.org/2000/svg}"
HEADING: Final = Heading(about="run.sqlite", steps=None)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A box as it is drawn."""

    name: str
    about: str
    kind: str
    label: str
    x: float
    y: float
    width: float


def picture(stacks: pl.DataFrame, heading: Heading = HEADING) -> ElementTree.Element:
    return ElementTree.fromstring(svg(stacks, OWN, heading))


def drawn(stacks: pl.DataFrame, heading: Heading = HEADING) -> list[Drawn]:
    return boxes_of(svg(stacks, OWN, heading))


def boxes_of(text: str) -> list[Drawn]:
    """The boxes of a picture."""
    every = ElementTree.fromstring(text).iter(f"{SVG}svg")
    return [_box(each) for each in every if "x" in each.attrib]


def _box(element: ElementTree.Element) -> Drawn:
    name, _, about = element.findtext(f"{SVG}title", "").partition("\n")
    return Drawn(
        name=name,
        about=about,
        kind=element.attrib["class"].removeprefix("box "),
        label=element.findtext(f"{SVG}text") or "",
        x=float(element.attrib["x"]),
        y=float(element.attrib["y"]),
        width=float(element.attrib["width"]),
    )


def test_widths_are_shares_of_the_idle_time() -> None:
    found = {each.name: each for each in drawn(idle_stacks(*ROWS))}
    whole = found["all idle time of host code and launches"].width
    assert whole == WIDTH - 2 * MARGIN
    shares = {name: each.width / whole for name, each in found.items()}
    assert shares["step/data"] == pytest.approx(0.85, abs=1e-5)
    assert shares["tokenize (tok.py:4)"] == pytest.approx(0.60, abs=1e-5)
    assert shares["(outside ranges)"] == pytest.approx(0.15, abs=1e-5)


def test_the_boxes_of_a_level_lie_beside_each_other_below_their_callers() -> None:
    boxes = drawn(idle_stacks(*ROWS))
    for box in boxes:
        level = sorted((each for each in boxes if each.y == box.y), key=lambda each: each.x)
        for left, right in pairwise(level):
            assert left.x + left.width <= right.x + 0.002
        callers = [each for each in boxes if each.y == box.y - 18 and each.x <= box.x + 0.002]
        if box.y > boxes[0].y:
            assert max(each.x + each.width for each in callers) >= box.x + box.width - 0.002


def test_a_narrow_box_has_a_shortened_name_and_a_hair_is_left_out() -> None:
    name = "a_function_of_a_very_long_name"
    rows = [
        ("step", "host", (f"{name} (a.py:{line})", f"g{line} (a.py:1)"), ms)
        for line, ms in ((1, 9_900), (2, 99), (3, 1))
    ]
    boxes = {each.name: each for each in drawn(idle_stacks(*rows))}
    assert boxes["g1 (a.py:1)"].label == "g1 (a.py:1)"
    assert boxes["g2 (a.py:1)"].label == ""
    assert "g3 (a.py:1)" not in boxes


def test_hostile_names_stay_text() -> None:
    heading = Heading(about=HOSTILE[0], steps=None)
    found = picture(hostile_stacks(), heading)
    assert len([*found.iter(f"{SVG}script")]) == 1
    text = svg(hostile_stacks(), OWN, heading)
    assert text.count("<script") == 1
    assert "\u202e" not in text
    assert "\x1b" not in text
    names = {each.name for each in drawn(hostile_stacks())}
    assert {HOSTILE[0], HOSTILE[3], "\u05e9\u05dc\u05d5\u05dd", "·evil·"} <= names
    assert all(len(each.label) < 250 for each in drawn(hostile_stacks()))


def test_the_file_needs_nothing_else() -> None:
    text = svg(idle_stacks(*ROWS), OWN, HEADING)
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"\b(?:href|src|url\(|@import|fetch|eval|innerHTML)\b", text)


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it_in_light_and_dark(dark: bool) -> None:
    text = svg(idle_stacks(*ROWS), OWN, HEADING)
    light, _, darker = text.partition("prefers-color-scheme: dark")
    rules = light + darker * dark
    fills = dict(re.findall(r"^ *([^{\n]+?) \{[^}]*\bfill: (#\w+)", rules, re.MULTILINE))
    for name, (_, *digits) in fills.items():
        fills[name] = "#" + "".join(2 * digit if len(digits) == 3 else digit for digit in digits)
    words = fills[".title, .about"] if dark else fills["text"]
    assert contrast(words, fills[".page"]) > 7
    boxes = {name: colour for name, colour in fills.items() if name.endswith(" rect")}
    assert {f".{box.kind} rect" for box in drawn(idle_stacks(*ROWS))} <= boxes.keys()
    assert all(contrast(fills["text"], colour) > 4.5 for colour in boxes.values())


RUN = Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})


def test_the_ending_says_which_form_a_file_has() -> None:
    assert draw(Results([RUN]), Path("idle.svg")).startswith("<svg ")
    assert json.loads(draw(Results([RUN]), Path("idle.json")))["name"] == "run.sqlite"


def test_the_time_is_that_of_a_judged_step() -> None:
    run = replace(RUN, step_counts={("run.sqlite", 0): 4})
    assert "25.0 ms per step" in draw(Results([run]), Path("idle.svg"))


def test_ranks_are_drawn_beside_each_other() -> None:
    drawn = draw(Results([RUN, renamed(RUN, "rank1.sqlite")]), Path("idle.svg"))
    assert ">run.sqlite\n100 ms, 50 %<" in drawn


def test_a_report_without_samples_names_how_to_record_them() -> None:
    with pytest.raises(SelectionError, match="has no Python samples") as raised:
        draw(Results([Handmade(tables={})]), Path("idle.svg"))
    assert raised.value.command == "nsysflow profile --sample-python 1000 -- COMMAND"


def test_a_gpu_that_never_waits_for_the_host_leaves_nothing_to_draw() -> None:
    trace: Trace = tiny.trace_of(tiny.sample(5, "main"))
    with pytest.raises(SelectionError, match="no GPU waits for host code or launches"):
        draw(Results([Handmade(tables={}, trace=trace)]), Path("idle.svg"))


NAMES = ["h200-hf-trainer", "h200-host-split", "h200-kineto"]
every_sampled = pytest.mark.parametrize("name", NAMES)


@cache
def run(name: str) -> Results:
    if name != "h200-kineto":
        return run_of(name)  # type: ignore[return-value]
    return Results([nsysflow.analyze(nsysflow.load(DATA / "h200-kineto.pt.trace.json.gz"))])


@cache
def profile(name: str) -> File:
    return read(draw(run(name), Path("idle.json")))


def waited_ns(name: str) -> int:
    """The idle time of host code and launches in the judged steps, by another table."""
    causes: Any = run(name).judged.table("accounting").select("host_ns", "launch_ns")
    return int(causes.sum_horizontal().sum())


@every_sampled
def test_the_stacks_sum_to_the_idle_time_of_host_code_and_launches(name: str) -> None:
    found = weights(profile(name))
    assert sum(found.values()) == profile(name).profiles[0].endValue == waited_ns(name)


@every_sampled
def test_phases_and_causes_are_as_wide_as_the_whole_and_no_folder_is_named(name: str) -> None:
    text = draw(run(name), Path("idle.svg"))
    whole, *rest = boxes_of(text)
    for kind in ("phase", "cause"):
        wide = sum(box.width for box in rest if box.kind == kind)
        assert wide == pytest.approx(whole.width, rel=0.005)
    for shown in (text, draw(run(name), Path("idle.json"))):
        assert "site-packages" not in shown
        assert "/home/" not in shown


def test_a_split_that_is_known_is_drawn_so() -> None:
    whole, *rest = boxes_of(draw(run("h200-host-split"), Path("idle.svg")))
    shares = {box.name.partition(" ")[0]: 100 * box.width / whole.width for box in rest}
    assert shares["tokenize"] == pytest.approx(60, abs=3)
    assert shares["collate"] == pytest.approx(30, abs=3)


def test_a_traces_operators_lie_below_their_callers() -> None:
    found = weights(profile("h200-kineto"))
    assert any(stack[-2:] == ("GeluBackward0", "aten::gelu_backward") for stack in found)


def test_code_of_the_program_differs_from_that_of_libraries() -> None:
    boxes = boxes_of(draw(run("h200-hf-trainer"), Path("idle.svg")))
    kinds = {box.name.rpartition("(")[2].partition(":")[0]: box.kind for box in boxes}
    assert kinds["hf_trainer.py"] == "own"
    assert kinds["transformers/trainer.py"] == "library"
    assert kinds["torch/nn/modules/module.py"] == "library"
