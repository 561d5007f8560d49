"""The flame graph as a picture."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final
from xml.etree import ElementTree

import polars as pl
import pytest

from nsysflow.report.flamegraph import MARGIN, WIDTH, Heading, svg
from tests.report.flamegraph.stacks import HOSTILE, OWN, ROWS, hostile_stacks, idle_stacks

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


def test_a_box_names_its_time_and_share() -> None:
    (tokenize,) = (each for each in drawn(idle_stacks(*ROWS)) if "tokenize" in each.name)
    assert tokenize.about == "60.0 ms, 60 %"
    assert tokenize.kind == "own"


def test_times_are_those_of_a_step_where_steps_are_judged() -> None:
    boxes = drawn(idle_stacks(*ROWS), Heading(about="run.sqlite", steps=4))
    assert boxes[0].about == "25.0 ms per step, 100 %"


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


def luminance(colour: str) -> float:
    """Of `#rgb` or `#rrggbb`, as WCAG defines it."""
    digits = colour.removeprefix("#")
    pairs = re.findall("..", digits if len(digits) == 6 else "".join(2 * each for each in digits))
    parts = [int(pair, 16) / 255 for pair in pairs]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_what_is_behind_it_in_light_and_dark(dark: bool) -> None:
    text = svg(idle_stacks(*ROWS), OWN, HEADING)
    light, _, darker = text.partition("prefers-color-scheme: dark")
    rules = light + darker * dark
    fills = dict(re.findall(r"^ *([^{\n]+?) \{[^}]*\bfill: (#\w+)", rules, re.MULTILINE))
    words = fills[".title, .about"] if dark else fills["text"]
    assert contrast(words, fills[".page"]) > 7
    boxes = {name: colour for name, colour in fills.items() if name.endswith(" rect")}
    assert {f".{box.kind} rect" for box in drawn(idle_stacks(*ROWS))} <= boxes.keys()
    assert all(contrast(fills["text"], colour) > 4.5 for colour in boxes.values())
