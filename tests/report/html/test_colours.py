import re
from importlib.resources import files
from typing import Final, Literal

import pytest

from nsysflow.report import palette
from nsysflow.report.html.document import letters_on, variables
from tests.report.sight import contrast

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
def test_causes_and_work_have_the_colours_of_all_pictures(
    rule: int, theme: Literal["light", "dark"]
) -> None:
    assert len(RULES) == 3
    expected = {f"cause-{name}": getattr(each, theme) for name, each in palette.CAUSES.items()}
    expected |= {f"class-{name}": getattr(each, theme) for name, each in palette.CLASSES.items()}
    assert expected.items() <= RULES[rule].items()


def test_the_page_is_dark_on_no_paper() -> None:
    light, *dark = variables().split("@media ")
    assert "screen" not in light
    assert all(rule.startswith("screen") for rule in dark)


@pytest.mark.parametrize(
    "colour", sorted({*RULES[0].values(), *RULES[1].values()} - {"#000", "#fff"})
)
def test_letters_on_a_colour_can_be_read(colour: str) -> None:
    letters = {"#000": "#000000", "#fff": "#ffffff"}[letters_on(colour)]
    assert contrast(colour, letters) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "quiet", "accent", "warn", "saved"])
@pytest.mark.parametrize("behind", ["page", "card", "raised"])
def test_text_can_be_read_in_both_themes(text: str, behind: str, theme: int) -> None:
    assert contrast(SURFACES[text][theme], SURFACES[behind][theme]) >= 4.5
