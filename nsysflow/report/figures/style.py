"""How every figure looks: sizes, fonts, colours, and what stands above and below the axes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Final
from warnings import catch_warnings, filterwarnings

import polars as pl
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from nsysflow.base.names import printable
from nsysflow.base.units import time_unit
from nsysflow.report.palette import PAGE, Colour
from nsysflow.report.pictures import LegendEntry
from nsysflow.report.results import Results

COLUMN_MM: Final = 89
"""The width of one column of a journal."""

PAGE_MM: Final = 183
"""The width of two columns."""

BACKGROUND: Final = PAGE["background"].light
INK: Final = PAGE["ink"].light
FAINT: Final = PAGE["faint"].light
LINE: Final = PAGE["line"].light

_MM: Final = 1 / 25.4
"""In inches, of which matplotlib thinks."""

_MARGIN_MM: Final = 1.5
_TITLE_MM: Final = 6.0
_LINE_MM: Final = 2.6
"""The height of a line of the small print."""

_LINES: Final = 3
"""How many lines it has at most."""

_GAP_MM: Final = 1.0
"""Above the small print."""

_KEY_MM: Final = 3.6
"""The height of a line of the legend."""

_SMALL: Final = 5.5
"""The size of the small print, in points."""

_LETTER_MM: Final = 1.1
"""The width of a letter of the small print."""

_KEY_LETTER_MM: Final = 1.3
"""The width of a letter of the legend."""

_PATCH_MM: Final = 8
"""What a patch of the legend takes with the room around it."""

_OPAQUE: Final = 0.45
"""How much of its colour what may be noise keeps."""

_RC: Final = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],  # matplotlib brings the first one
    "font.size": 7,
    "axes.labelsize": 7,
    "axes.labelpad": 2,
    "axes.titlesize": 7,
    "axes.titlelocation": "left",
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "axes.linewidth": 0.5,
    "xtick.major.width": 0.5,
    "ytick.major.width": 0.5,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.4,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 6.5,
    "figure.facecolor": BACKGROUND,
    "savefig.facecolor": BACKGROUND,
    "text.parse_math": False,  # names from a trace may hold a $
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "nsysflow",  # the same figure gives the same bytes
}


@contextmanager
def applied() -> Iterator[None]:
    """This style, whatever the user's own is, for drawing and for saving."""
    with style.context(["default", _RC]), catch_warnings():
        filterwarnings("ignore", r"Glyph .* missing from font")  # names of any script; SVG has them
        yield


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The size of a figure, and what stands around its axes.

    Attributes:
        title: what it shows, in plain words.
        about: the small print: of which report, GPU and steps.
        width_mm: one or two columns.
        body_mm: the height of the axes with their labels.
        keys: the legend; may be empty.
    """

    title: str
    about: str
    width_mm: float
    body_mm: float
    keys: Sequence[LegendEntry] = ()

    def figure(self) -> Figure:
        """A figure with title, legend and small print, whose axes are still to be drawn."""
        columns, small = self._columns(), self._small_print()
        print_mm = _MARGIN_MM + _LINE_MM * len(small)
        foot_mm = print_mm + _GAP_MM + _KEY_MM * -(-len(self.keys) // columns)
        height_mm = _TITLE_MM + self.body_mm + foot_mm
        left = _MARGIN_MM / self.width_mm
        figure = Figure(
            figsize=(self.width_mm * _MM, height_mm * _MM),
            layout=ConstrainedLayoutEngine(
                w_pad=_MARGIN_MM * _MM,
                rect=(0, foot_mm / height_mm, 1, self.body_mm / height_mm),
            ),
        )
        top = 1 - _MARGIN_MM / height_mm
        figure.text(left, top, self.title, weight="bold", size=8, va="top")
        bottom = _MARGIN_MM / height_mm
        figure.text(left, bottom, "\n".join(small), size=_SMALL, color=FAINT, va="bottom")
        if self.keys:
            figure.legend(
                handles=[Patch(**fill(key.colour), label=key.label) for key in self.keys],
                loc="lower left",
                bbox_to_anchor=(left, (print_mm + _GAP_MM) / height_mm),
                ncols=columns,
                borderpad=0,
                borderaxespad=0,
                handlelength=1.6,
                columnspacing=1.5,
                labelspacing=0.45,
            )
        return figure

    def _small_print(self) -> list[str]:
        """The small print in lines."""
        letters = int((self.width_mm - 2 * _MARGIN_MM) / _LETTER_MM)
        return wrap(printable(self.about), letters, max_lines=_LINES, placeholder=" …")

    def _columns(self) -> int:
        """How many columns the legend has room for."""
        longest = max((len(key.label) for key in self.keys), default=1)
        return max(1, int(self.width_mm / (_PATCH_MM + _KEY_LETTER_MM * longest)))


def paled(colour: Colour) -> Colour:
    """The colour of what may be noise: closer to the page."""
    mixed = (
        round(_OPAQUE * own + (1 - _OPAQUE) * page)
        for own, page in zip(_rgb(colour.light), _rgb(BACKGROUND), strict=True)
    )
    return replace(colour, light="#" + "".join(f"{value:02x}" for value in mixed))


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def fill(colour: Colour) -> dict[str, Any]:
    """How a patch of that colour is filled; what touches it is told apart by hatch and edge."""
    return {
        "facecolor": colour.light,
        "edgecolor": BACKGROUND,
        "hatch": colour.hatch or None,
        "linewidth": 0.3,
    }


def scale_in_time(axes: Axes, which: str, longest_ns: float, label: str) -> None:
    """Let an axis whose data is in ns show the unit that suits them.

    Args:
        axes: the axes.
        which: `x` or `y`.
        longest_ns: the longest time on it.
        label: what it shows, to which the unit is added; may be empty.
    """
    unit_ns, unit = time_unit(round(longest_ns))
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda ns, _: f"{ns / unit_ns:g}"))
    axis.set_label_text(f"{label} ({unit})" if label else unit)


def ink_on(colour: Colour) -> dict[str, Any]:
    """How a text on a patch of that colour is written: dark or light, without hatch behind it."""
    red, green, blue = _rgb(colour.light)
    light = 0.299 * red + 0.587 * green + 0.114 * blue
    box = {"facecolor": colour.light, "edgecolor": "none", "pad": 1}
    return {"color": INK if light > 127 else BACKGROUND, "bbox": box}


TRACK: Final = ("report", "process", "device")
"""What names the process and GPU of a step."""

_CUT: Final = ("cut-off", "incomplete")


def whole_steps(results: Results) -> pl.DataFrame:
    """STEPS without those that the recording cut off or lost operations of, with `judged`."""
    judged = results.judged.together(lambda report: report.step_keys).with_columns(
        pl.lit(value=True).alias("judged")
    )
    whole = results.table("steps").filter(~pl.col("kind").is_in(_CUT))
    joined = whole.join(judged, on=[*TRACK, "step"], how="left", maintain_order="left")
    return joined.with_columns(pl.col("judged").fill_null(value=False))
