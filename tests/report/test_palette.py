"""The colours of pictures can be told apart, by colour-blind people too."""

from itertools import combinations
from typing import Final, Literal

import pytest

from nsysflow.analysis.declared.causes import CAUSES
from nsysflow.report import palette
from nsysflow.report.palette import Colour

Rgb = tuple[float, float, float]
Matrix = tuple[Rgb, Rgb, Rgb]
Theme = Literal["light", "dark"]

AS_SEEN: Final[dict[str, Matrix]] = {
    "typical": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Linear RGB as people see it: Machado, Oliveira and Fernandes, 2009."""

TOLD_APART: Final = 0.085
"""In OKLab, whose white and black are 1 apart. Okabe and Ito's eight colours are 0.076 apart."""

STANDS_OUT: Final = 2.0
"""The contrast of a colour with the page, as WCAG computes it."""

READABLE: Final = 4.5
"""The same for small text."""

SHOWN: Final = {
    **palette.CAUSES,
    **{name: palette.CLASSES[name] for name in ("compute", "communication", "copy")},
}
"""What is drawn side by side."""


def linear(colour: str) -> Rgb:
    """`#rrggbb` in linear RGB, 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return _linear(red), _linear(green), _linear(blue)


def _linear(value: float) -> float:
    return float(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)


def times(matrix: Matrix, of: Rgb) -> Rgb:
    first, second, third = (
        sum(each * value for each, value in zip(row, of, strict=True)) for row in matrix
    )
    return first, second, third


def oklab(rgb: Rgb) -> Rgb:
    """Ottosson's OKLab."""
    to_cones: Matrix = (
        (0.4122214708, 0.5363325363, 0.0514459929),
        (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )
    to_lab: Matrix = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    red, green, blue = (min(1.0, max(0.0, value)) for value in rgb)
    long, medium, short = times(to_cones, (red, green, blue))
    return times(to_lab, (long ** (1 / 3), medium ** (1 / 3), short ** (1 / 3)))


def apart(one: str, other: str, seen: Matrix) -> float:
    """How far two colours are apart."""
    labs = [oklab(times(seen, linear(colour))) for colour in (one, other)]
    return float(sum((x - y) ** 2 for x, y in zip(*labs, strict=True)) ** 0.5)


def contrast(one: str, other: str) -> float:
    """The contrast of WCAG 2."""
    shares = (0.2126, 0.7152, 0.0722)
    lights = sorted(
        sum(share * value for share, value in zip(shares, linear(colour), strict=True))
        for colour in (one, other)
    )
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def test_every_cause_has_a_colour_in_the_declared_order() -> None:
    assert [*palette.CAUSES] == [*CAUSES]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", AS_SEEN)
def test_any_two_causes_or_classes_can_be_told_apart(seen: str, theme: Theme) -> None:
    near = {
        (one, other): round(found, 3)
        for (one, first), (other, second) in combinations(SHOWN.items(), 2)
        if (found := apart(getattr(first, theme), getattr(second, theme), AS_SEEN[seen]))
        < TOLD_APART
    }
    assert near == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_stands_out_from_the_page(theme: Theme) -> None:
    page = getattr(palette.PAGE["background"], theme)
    drawn = {**SHOWN, **{name: palette.PAGE[name] for name in ("faster", "slower")}}
    faint = [name for name, of in drawn.items() if contrast(getattr(of, theme), page) < STANDS_OUT]
    assert faint == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ink", "faint"])
def test_text_can_be_read(name: str, theme: Theme) -> None:
    page, text = (getattr(palette.PAGE[of], theme) for of in ("background", name))
    assert contrast(text, page) >= READABLE


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", AS_SEEN)
def test_faster_and_slower_can_be_told_apart(seen: str, theme: Theme) -> None:
    faster, slower = (getattr(palette.PAGE[name], theme) for name in ("faster", "slower"))
    assert apart(faster, slower, AS_SEEN[seen]) >= TOLD_APART


def test_the_measure_itself_knows_black_from_white() -> None:
    white, black = Colour(light="#ffffff", dark="#ffffff"), "#000000"
    assert abs(apart(white.light, black, AS_SEEN["typical"]) - 1) < 1e-3
    assert abs(contrast(white.light, black) - 21) < 1e-9
