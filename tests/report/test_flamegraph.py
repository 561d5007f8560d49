"""The idle flame graph: what the reviewed page of `STACKS` does not show."""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import polars as pl
import pytest

import nsysflow
from nsysflow.base.errors import SelectionError
from nsysflow.report.flamegraph import ROW, SCHEMA, Heading, boxes, draw, speedscope, svg
from tests import tiny
from tests.analyses import run_of
from tests.report.handmade import HOSTILE, Handmade, Results, frame, renamed
from tests.report.test_palette import contrast
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

HEADING: Final = Heading(about="run.sqlite", steps=None)
SVG: Final = "{http://www.w3.org/2000/svg}"


def idle_stacks(*rows: Row, report: str = "run.sqlite") -> pl.DataFrame:
    """IDLE_STACKS of these rows."""
    of = ("phase", "cause", "stack", "idle_ms")
    named = (dict(zip(of, row, strict=True)) for row in rows)
    return frame("idle_stacks", *(row | {"report": report} for row in named))


FIRST_RANK: Final = idle_stacks(
    *ROWS,
    ("step/data", "host", TOKENIZE[:1], 7),  # it calls others, and runs code of its own
    ("step", "host", ("main (train.py:9)",), 1),  # two lines of one function
    ("step", "host", ("main (train.py:12)",), 2),
    ("step", "launch", ("forward (a.py:1)",), 4),  # one name in two files
    ("step", "launch", ("forward (b.py:1)",), 4),
    ("step", "launch", ("aten::normal_",), 3),
)
STACKS: Final = pl.concat([FIRST_RANK, idle_stacks(ROWS[0], report="rank1.sqlite")])
"""Stacks of two ranks."""


def hostile_stacks() -> pl.DataFrame:
    """Stacks of functions, files, phases and a report with hostile names."""
    rows = [(name, "host", (f"{name} ({name}:1)", name), 1) for name in (*HOSTILE, "")]
    return idle_stacks(*rows, report=HOSTILE[0])


def test_a_stack_of_a_thousand_calls_is_no_problem() -> None:
    deep = tuple(f"f (a.py:{line})" for line in range(1_000))
    root, depth = boxes(idle_stacks(("step", "host", deep, 1))), 0
    while root.children:
        (root,), depth = root.children.values(), depth + 1
    assert depth == 1_002


def read(text: str) -> dict[str, Any]:
    """A file as speedscope reads it."""
    file: dict[str, Any] = json.loads(text)
    assert file["$schema"] == SCHEMA == "https://www.speedscope.app/file-format-schema.json"
    assert file["exporter"].startswith("nsysflow ")
    return file


def weights(file: dict[str, Any], profile: int = 0) -> dict[tuple[str, ...], int]:
    """The idle time of each stack of a profile, by the names of its frames."""
    of = file["profiles"][profile]
    names = [frame["name"] for frame in file["shared"]["frames"]]
    stacks = [tuple(names[index] for index in sample) for sample in of["samples"]]
    return dict(zip(stacks, of["weights"], strict=True))


class Drawn(NamedTuple):
    """A box as it is drawn."""

    name: str
    about: str
    kind: str
    label: str
    x: float
    y: float
    width: float


def drawn(text: str) -> list[Drawn]:
    every = ElementTree.fromstring(text).iter(f"{SVG}svg")
    return [_box(each) for each in every if "x" in each.attrib]


def _box(element: ElementTree.Element) -> Drawn:
    name, _, about = element.findtext(f"{SVG}title", "").partition("\n")
    kind, label = element.attrib["class"].removeprefix("box "), element.findtext(f"{SVG}text")
    x, y, width = (float(element.attrib[side]) for side in ("x", "y", "width"))
    return Drawn(name, about, kind, label or "", x, y, width)


def test_the_boxes_of_a_level_lie_beside_each_other_below_their_callers() -> None:
    boxes = drawn(svg(STACKS, OWN, HEADING))
    for box in boxes:
        level = sorted((each for each in boxes if each.y == box.y), key=lambda each: each.x)
        for left, right in pairwise(level):
            assert left.x + left.width <= right.x + 0.002
        callers = [each for each in boxes if each.y == box.y - ROW and each.x <= box.x + 0.002]
        if box.y > boxes[0].y:
            assert max(each.x + each.width for each in callers) >= box.x + box.width - 0.002


def test_a_narrow_box_has_a_shortened_name_and_a_hair_is_left_out() -> None:
    lines = (1, 9_900), (2, 99), (3, 1)
    rows = (("step", "host", (f"f (a.py:{at})", f"g{at} (a.py:1)"), ms) for at, ms in lines)
    labels = {each.name: each.label for each in drawn(svg(idle_stacks(*rows), OWN, HEADING))}
    assert (labels["g1 (a.py:1)"], labels["g2 (a.py:1)"]) == ("g1 (a.py:1)", "")
    assert "g3 (a.py:1)" not in labels


def test_hostile_names_stay_text() -> None:
    stacks = hostile_stacks()
    found = {sample[-1] for sample in weights(read(speedscope(stacks, "run.sqlite")))}
    assert found == set(stacks["stack"].list.last())
    text = svg(stacks, OWN, Heading(about=HOSTILE[0], steps=None))
    assert len([*ElementTree.fromstring(text).iter(f"{SVG}script")]) == text.count("<script") == 1
    assert not {"\u202e", "\x1b"} & {*text}
    boxes = drawn(text)
    assert {HOSTILE[0], HOSTILE[5], HOSTILE[7], "·evil·"} <= {b.name for b in boxes}
    assert all(len(each.label) < 250 for each in boxes)


def test_the_file_needs_nothing_else() -> None:
    text = svg(STACKS, OWN, HEADING)
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert not re.search(r"\b(?:href|src|url\(|@import|fetch|eval|innerHTML)\b", text)


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it_in_light_and_dark(dark: bool) -> None:
    text = svg(STACKS, OWN, HEADING)
    light, _, darker = text.partition("prefers-color-scheme: dark")
    rules = light + darker * dark
    fills = dict(re.findall(r"^ *([^{\n]+?) \{[^}]*\bfill: (#\w+)", rules, re.MULTILINE))
    for name, (_, *digits) in fills.items():
        fills[name] = "#" + "".join(2 * digit if len(digits) == 3 else digit for digit in digits)
    words = fills[".title, .about"] if dark else fills["text"]
    assert contrast(words, fills[".page"]) > 7
    boxes = {name: colour for name, colour in fills.items() if name.endswith(" rect")}
    assert {f".{box.kind} rect" for box in drawn(text)} <= boxes.keys()
    assert all(contrast(fills["text"], colour) > 4.5 for colour in boxes.values())


RUN = Handmade(tables={"idle_stacks": idle_stacks(*ROWS)})


def test_the_ending_says_which_form_a_file_has() -> None:
    assert draw(Results([RUN]), Path("idle.svg")).startswith("<svg ")
    assert json.loads(draw(Results([RUN]), Path("idle.json")))["name"] == "run.sqlite"


def test_the_time_is_that_of_a_judged_step_and_ranks_are_drawn_together() -> None:
    run = replace(RUN, step_counts={("run.sqlite", 0): 4})
    assert "25.0 ms per step" in draw(Results([run]), Path("idle.svg"))
    both = draw(Results([RUN, renamed(RUN, "rank1.sqlite")]), Path("idle.svg"))
    assert ">run.sqlite\n100 ms, 50 %<" in both


def test_without_samples_or_waits_for_the_host_there_is_nothing_to_draw() -> None:
    with pytest.raises(SelectionError, match="has no Python samples") as raised:
        draw(Results([Handmade(tables={})]), Path("idle.svg"))
    assert raised.value.command == "nsysflow profile --sample-python 1000 -- COMMAND"
    trace = tiny.trace_of(tiny.sample(5, "main"))
    with pytest.raises(SelectionError, match="no GPU waits for host code or launches"):
        draw(Results([Handmade(tables={}, trace=trace)]), Path("idle.svg"))


@cache
def run(name: str) -> Any:
    if name != "h200-kineto":
        return run_of(name)
    return Results([nsysflow.analyze(nsysflow.load(DATA / "h200-kineto.pt.trace.json.gz"))])


@pytest.mark.parametrize("name", ["h200-hf-trainer", "h200-host-split", "h200-kineto"])
def test_all_idle_time_of_host_code_and_launches_is_there_and_no_folder(name: str) -> None:
    files = {ending: draw(run(name), Path(f"idle.{ending}")) for ending in ("svg", "json")}
    for text in files.values():
        assert "site-packages" not in text
        assert "/home/" not in text
    file = read(files["json"])
    idle = run(name).judged.table("accounting").select("host_ns", "launch_ns").sum_horizontal()
    assert sum(weights(file).values()) == file["profiles"][0]["endValue"] == idle.sum()
    whole, *rest = drawn(files["svg"])
    for kind in ("phase", "cause"):
        wide = sum(box.width for box in rest if box.kind == kind)
        assert wide == pytest.approx(whole.width, rel=0.005)


def test_code_of_the_program_differs_from_that_of_libraries() -> None:
    boxes = drawn(draw(run("h200-hf-trainer"), Path("idle.svg")))
    kinds = {box.name.rpartition("(")[2].partition(":")[0]: box.kind for box in boxes}
    files = "hf_trainer.py", "transformers/trainer.py", "torch/nn/modules/module.py"
    assert [kinds[file] for file in files] == ["own", "library", "library"]
