from itertools import combinations
from typing import Final, Literal

import pytest

from nsysflow.report import palette
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
