"""The colours of the page stay apart for colour-blind people, and its text can be read."""

import math
import re
from importlib.resources import files
from itertools import combinations
from typing import Final

import pytest

from nsysflow.analysis.declared.causes import CAUSES

CSS: Final = files("nsysflow.report.html").joinpath("look", "colours.css").read_text("utf-8")
PALETTE: Final = dict(re.findall(r"--((?:cause|class)-\w+): (#\w{6});", CSS))
SURFACES: Final = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\);", CSS)
}

# Machado, Oliveira and Fernandes (2009), table 1, severity 1: linear RGB as others see it
SIGHTS: Final = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
}

APART: Final = 20.0
"""In CIE 1976 L*a*b*; 2.3 is just noticeable side by side."""

Colour = tuple[float, ...]


def linear(colour: str) -> Colour:
    """A colour such as `#3f469b` in linear RGB, 0 to 1."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)


def seen(colour: str, sight: str) -> Colour:
    """The same in L*a*b*, as someone sees it."""
    rgb = linear(colour)
    r, g, b = (
        min(1.0, max(0.0, sum(a * c for a, c in zip(row, rgb, strict=True))))
        for row in SIGHTS[sight]
    )
    x, y, z = (
        _curve(part)
        for part in (
            (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047,
            0.2126 * r + 0.7152 * g + 0.0722 * b,
            (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _curve(part: float) -> float:
    return math.cbrt(part) if part > 0.008856 else 7.787 * part + 16 / 116


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's contrast of two colours, 1 to 21."""
    weights = (0.2126, 0.7152, 0.0722)
    lights = sorted(
        sum(w * c for w, c in zip(weights, linear(each), strict=True)) for each in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def test_every_cause_has_a_colour() -> None:
    assert {name for name in PALETTE if name.startswith("cause")} == {f"cause-{c}" for c in CAUSES}


@pytest.mark.parametrize("sight", SIGHTS)
def test_parts_that_may_touch_differ(sight: str) -> None:
    parts = {name: hex_ for name, hex_ in PALETTE.items() if name != "class-other"}
    assert len(parts) == 15
    for (one, first), (other, second) in combinations(parts.items(), 2):
        apart = math.dist(seen(first, sight), seen(second, sight))
        assert apart >= APART, (one, other)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "warn", "saved"])
@pytest.mark.parametrize("behind", ["page", "card", "raised"])
def test_text_can_be_read_in_both_themes(text: str, behind: str, theme: int) -> None:
    assert contrast(SURFACES[text][theme], SURFACES[behind][theme]) >= 4.5
