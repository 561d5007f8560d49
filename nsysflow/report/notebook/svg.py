"""Small SVG pictures that need no script and take the notebook's own colour for text."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Final

from nsysflow.base.names import printable
from nsysflow.report import palette
from nsysflow.report.palette import Colour

WIDTH: Final = 760
LABEL: Final = 160
"""The room for the name of a row, on the left."""

_DARK: Final = (
    'body[data-jp-theme-light="false"]',  # Jupyter
    "body.vscode-dark",
    'html[theme="dark"]',  # Colab
    ".dark",  # marimo
)
"""How notebooks say that their theme is dark."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A coloured box.

    Attributes:
        x: its left edge.
        y: its upper edge.
        width: how wide it is.
        height: how high it is.
        colour: its colour in both themes.
        title: what a mouse that rests on it says; empty for nothing.
    """

    x: float
    y: float
    width: float
    height: float
    colour: Colour
    title: str = ""


def text_of(text: str) -> str:
    """A text as HTML and SVG take it."""
    return escape(printable(text))


def picture(height: float, parts: Iterable[str], title: str) -> str:
    """A picture as wide as a notebook's cell.

    Args:
        height: how high it is.
        parts: what is in it.
        title: what it shows, for those who cannot see it.
    """
    return (
        f'<svg role="img" aria-label="{text_of(title)}" width="{WIDTH}" height="{height:g}"'
        f' viewBox="0 0 {WIDTH} {height:g}">{"".join(parts)}</svg>'
    )


def box(of: Box) -> str:
    """A box. Its colour is an attribute, which stays where a viewer removes styles."""
    title = f"<title>{text_of(of.title)}</title>" if of.title else ""
    return (
        f'<rect class="{class_of(of.colour)}" x="{of.x:g}" y="{of.y:g}" width="{of.width:g}"'
        f' height="{of.height:g}" fill="{of.colour.light}">{title}</rect>'
    )


def label(text: str, x: float, y: float, *, to_the_left: bool = False) -> str:
    """A text that begins, or ends, at `x`."""
    anchor = ' text-anchor="end"' if to_the_left else ""
    return (
        f'<text x="{x:g}" y="{y:g}"{anchor} font-size="11" fill="currentColor">'
        f"{text_of(text)}</text>"
    )


def key(colour: Colour, text: str) -> str:
    """An entry of a legend, as HTML."""
    patch = box(Box(x=0, y=0, width=12, height=10, colour=colour))
    return (
        f'<span class="key"><svg width="12" height="10" viewBox="0 0 12 10">{patch}</svg>'
        f" {text_of(text)}</span>"
    )


def class_of(colour: Colour) -> str:
    """The class of what has that colour, by which a dark theme finds it."""
    return f"nsf{colour.light[1:]}"


def dark_rules() -> str:
    """CSS that gives each colour its shade of dark themes."""
    colours = {*palette.CAUSES.values(), *palette.CLASSES.values()}
    return "\n".join(
        f"{', '.join(f'{dark} .{class_of(each)}' for dark in _DARK)} {{ fill: {each.dark}; }}"
        for each in sorted(colours, key=lambda each: each.light)
    )
