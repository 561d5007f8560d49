"""The colours of causes and of GPU work, as CSS variables of the page.

`--cause-NAME`, `--class-NAME` and, of a CUDA call that has a cause, `--call-NAME`; `--on-…` is the
colour of letters on it.
"""

from collections.abc import Iterator
from typing import Final, Literal

from nsysflow.report.palette import CAUSES, CLASSES, Colour

Theme = Literal["light", "dark"]

_DARK: Final = {
    "screen and (prefers-color-scheme: dark)": ":root:not([data-theme='light'])",
    "screen": ":root[data-theme='dark']",
}
"""Where the page is dark: as the system has it or the reader chose; never on paper."""


def variables() -> str:
    """The style sheet."""
    dark = (f"@media {where} {{\n{_rule(of, 'dark')}}}\n" for where, of in _DARK.items())
    return "".join([_rule(":root", "light"), *dark])


def _rule(of: str, theme: Theme) -> str:
    lines = "".join(f"  {line};\n" for line in _lines(theme))
    return f"{of} {{\n{lines}}}\n"


def _lines(theme: Theme) -> Iterator[str]:
    for name, colour in CAUSES.items():
        yield from _both(f"cause-{name}", colour, theme)
        yield f"--call-{name}: {_of(colour, theme)}"
    for name, colour in CLASSES.items():
        yield from _both(f"class-{name}", colour, theme)


def _both(name: str, colour: Colour, theme: Theme) -> Iterator[str]:
    found = _of(colour, theme)
    yield f"--{name}: {found}"
    yield f"--on-{name}: {letters_on(found)}"


def _of(colour: Colour, theme: Theme) -> str:
    return colour.light if theme == "light" else colour.dark


def letters_on(colour: str) -> str:
    """Black or white, whichever has more contrast with `#rrggbb`."""
    return "#000" if luminance(colour) > _AS_DARK_AS_LIGHT else "#fff"


_AS_DARK_AS_LIGHT: Final = 0.179
"""Black and white have the same contrast with a colour of this luminance."""


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`, 0 to 1 (WCAG 2.2)."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
