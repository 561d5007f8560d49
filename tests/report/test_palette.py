"""How far colours are apart, as people see them, colour-blind ones too; what is drawn in them."""

import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import combinations
from typing import Final, Literal

import pytest

from nsysflow.report import palette
from nsysflow.report.html.document import letters_on, variables

Theme = Literal["light", "dark"]
Rgb = Sequence[float]
Matrix = Sequence[Rgb]

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


def linear(colour: str) -> Rgb:
    """`#rrggbb` in linear RGB, 0 to 1."""
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in values]


def times(matrix: Matrix, of: Rgb) -> Rgb:
    return [sum(each * value for each, value in zip(row, of, strict=True)) for row in matrix]


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
    cones = times(to_cones, [min(1.0, max(0.0, value)) for value in rgb])
    return times(to_lab, [cone ** (1 / 3) for cone in cones])


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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("seen", AS_SEEN)
def test_any_two_causes_or_classes_and_faster_and_slower_can_be_told_apart(
    seen: str, theme: Theme
) -> None:
    beside = {name: palette.PAGE[name] for name in ("faster", "slower")}
    near = {
        (one, other): round(found, 3)
        for shown in (SHOWN, beside)
        for (one, first), (other, second) in combinations(shown.items(), 2)
        if (found := apart(getattr(first, theme), getattr(second, theme), AS_SEEN[seen]))
        < TOLD_APART
    }
    assert near == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_stands_out_from_the_page_and_text_can_be_read(theme: Theme) -> None:
    page = getattr(palette.PAGE["background"], theme)
    drawn = {**SHOWN, **{name: palette.PAGE[name] for name in ("faster", "slower")}}
    faint = [name for name, of in drawn.items() if contrast(getattr(of, theme), page) < STANDS_OUT]
    assert faint == []
    texts = (getattr(palette.PAGE[name], theme) for name in ("ink", "faint"))
    assert min(contrast(text, page) for text in texts) >= READABLE


CSS: Final = files("nsysflow.report.html").joinpath("look", "colours.css").read_text("utf-8")
SURFACES: Final = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\);", CSS)
}
RULES: Final = [
    dict(re.findall(r"--([\w-]+): (#\w+);", rule))
    for rule in variables().split("}\n")
    if "--" in rule
]
"""The variables of each rule: light, dark by the system, dark by choice."""


@pytest.mark.parametrize(("rule", "theme"), [*enumerate(["light", "dark", "dark"])])
def test_causes_and_work_have_the_colours_of_all_pictures(rule: int, theme: Theme) -> None:
    assert len(RULES) == 3
    expected = {f"cause-{name}": getattr(each, theme) for name, each in palette.CAUSES.items()}
    expected |= {f"class-{name}": getattr(each, theme) for name, each in palette.CLASSES.items()}
    assert expected.items() <= RULES[rule].items()


def test_the_page_is_dark_on_no_paper() -> None:
    light, *dark = variables().split("@media ")
    assert "screen" not in light
    assert all(rule.startswith("screen") for rule in dark)


def test_letters_on_a_colour_can_be_read() -> None:
    for colour in {*RULES[0].values(), *RULES[1].values()} - {"#000", "#fff"}:
        letters = {"#000": "#000000", "#fff": "#ffffff"}[letters_on(colour)]
        assert contrast(colour, letters) >= 4.5, colour


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "warn", "saved"])
def test_text_can_be_read_in_both_themes(text: str, theme: int) -> None:
    for behind in ("page", "card", "raised"):
        assert contrast(SURFACES[text][theme], SURFACES[behind][theme]) >= 4.5, behind
