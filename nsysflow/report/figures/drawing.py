"""All figures of a run, or of a comparison, as the files that they become."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Generic, TypeVar

from matplotlib.figure import Figure

from nsysflow.compare.comparison import Comparison
from nsysflow.report.figures import gpu_time, steps
from nsysflow.report.figures.style import applied
from nsysflow.report.pictures import FIGURE_FORMS, DrawnFigures, figure_files
from nsysflow.report.results import Results

Shown = TypeVar("Shown", Results, Comparison)


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[Shown]):
    """One figure.

    Attributes:
        name: of its files, without ending.
        draw: makes it; None where it would be empty.
        empty: why it may be empty, in words.
    """

    name: str
    draw: Callable[[Shown], Figure | None]
    empty: str


_DPI: Final = 300
"""Of PNG files: what journals ask for."""

_SCREEN_DPI: Final = 150
"""A page is then 1,080 pixels wide."""


@dataclass(frozen=True)
class Figures(Generic[Shown]):
    """All figures of one thing, in the order in which people read them."""

    kinds: Sequence[Kind[Shown]]

    @property
    def files(self) -> list[str]:
        """The files that they may become."""
        return [file for kind in self.kinds for file in figure_files(kind.name)]

    def draw(self, shown: Shown) -> DrawnFigures:
        """Draw all that are not empty."""
        drawn = DrawnFigures()
        for kind in self.kinds:
            with applied():
                figure = kind.draw(shown)
                if figure is None:
                    drawn.empty[kind.name] = kind.empty
                else:
                    for form in FIGURE_FORMS:
                        drawn.files[f"{kind.name}.{form}"] = _saved(figure, form, _DPI)
        return drawn


OF_RUN: Final[Figures[Results]] = Figures(
    (
        Kind(name="breakdown", draw=gpu_time.draw_breakdown, empty="no GPU work"),
        Kind(
            name="idle-over-steps",
            draw=steps.draw_idle_over_steps,
            empty="no step with idle time",
        ),
        Kind(name="gap-histogram", draw=gpu_time.draw_gap_histogram, empty="no gaps"),
        Kind(name="phases", draw=gpu_time.draw_phases, empty="no ranges with GPU work"),
        Kind(name="kernel-classes", draw=gpu_time.draw_kernel_classes, empty="no kernels"),
        Kind(name="ranks", draw=steps.draw_ranks, empty="no steps of several ranks"),
    )
)
"""The figures of a run."""

OF_COMPARISON: Final[Figures[Comparison]] = Figures(
    (Kind(name="bridge", draw=steps.draw_bridge, empty="nothing changed"),)
)
"""The figures of a comparison."""


def screen_png(draw: Callable[[Shown], Figure | None], shown: Shown) -> bytes | None:
    """One figure as PNG for a screen; None where it would be empty."""
    with applied():
        figure = draw(shown)
        return None if figure is None else _saved(figure, "png", _SCREEN_DPI)


def _saved(figure: Figure, form: str, dpi: float) -> bytes:
    """The content of a figure's file of that ending."""
    file = BytesIO()
    figure.savefig(file, format=form, dpi=dpi, metadata=FIGURE_FORMS[form])
    return file.getvalue()
