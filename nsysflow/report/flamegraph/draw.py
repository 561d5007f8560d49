"""The idle flame graph of a run, in the form that a file's ending asks for."""

from pathlib import Path

from nsysflow.analysis.frames.source_files import is_own, shown_frames
from nsysflow.analysis.idle.samples import has_host_stacks
from nsysflow.base.errors import SelectionError
from nsysflow.report.fields import together
from nsysflow.report.flamegraph.speedscope import speedscope
from nsysflow.report.flamegraph.svg import Heading, svg
from nsysflow.report.results import Results


def draw(results: Results, file: Path) -> str:
    """What the host ran while the GPU waited in the judged steps, as the text of `file`.

    Args:
        results: the run.
        file: it ends in `.svg`, a picture for a browser, or in `.json`, for speedscope.app.

    Raises:
        SelectionError: no report says what the host ran, or the GPU never waited for it.
    """
    judged = results.judged
    stacks = judged.idle_stacks()
    if stacks.is_empty():
        raise _nothing_to_draw(results)
    about = " · ".join(filter(None, [", ".join(results.reports), results.selection]))
    if file.suffix == ".json":
        return speedscope(stacks, about)
    steps = judged.step_count if judged.of_steps else None
    heading = Heading(about=f"{about}{together(results)}", steps=steps)
    return svg(stacks, own_files(results), heading)


def own_files(results: Results) -> set[str]:
    """The files of the program itself, as stacks name them."""
    return {
        shown
        for each in results.analyses
        for file, shown in shown_frames(each.trace.frames["file"].drop_nulls().unique()).items()
        if is_own(file, each.options.own)
    }


def _nothing_to_draw(results: Results) -> SelectionError:
    names = ", ".join(results.reports)
    if any(has_host_stacks(each.trace) for each in results.analyses):
        return SelectionError(
            f"in {names} no GPU waits for host code or launches; there is nothing to draw",
            "See what it does instead",
            f"nsysflow analyze {results.again}",
        )
    return SelectionError(
        f"{names} has no Python samples, so what the host ran is not known",
        "Record the program again, with samples",
        "nsysflow profile --sample-python 1000 -- COMMAND",
    )
