import re
from importlib.resources import files
from itertools import combinations
from typing import Final, Literal

import pytest

from nsysflow.report import palette
from nsysflow.report.html.document import letters_on, variables
from tests.report.sight import AS_SEEN, apart, contrast

Theme = Literal["light", "dark"]

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
