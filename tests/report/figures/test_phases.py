"""Phases, as bars."""

from collections import defaultdict

import pytest

from nsysflow.report.figures import gpu_time as phases
from nsysflow.report.figures.gpu_time import PHASES
from nsysflow.report.palette import CAUSES, CLASSES
from nsysflow.report.phase_tree import phase_tree
from nsysflow.report.results import Results
from tests.analyses import few_reports, run_of
from tests.report.figures.drawn import bars, colour, drawn, texts
from tests.report.handmade import MS, device, results, training

PARTS = {CLASSES["compute"].light: "busy"} | {of.light: name for name, of in CAUSES.items()}


@few_reports
def test_bars_are_as_wide_as_the_tree_of_phases_says(name: str) -> None:
    judged = run_of(name).judged
    tree, _ = phase_tree(judged, PHASES)
    if not any(phase.instances and phase.time_ns for phase in tree):
        assert phases.draw_phases(run_of(name)) is None
        return
    (axes,) = drawn(phases.draw_phases, run_of(name)).axes
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for bar in bars(axes):
        if bar.get_width():
            at = round(bar.get_y() + bar.get_height() / 2)
            found[at][PARTS[colour(bar)]] = bar.get_width() * judged.step_count
    wanted = [
        {part: ns for part, ns in {"busy": phase.busy_ns, **phase.causes_ns}.items() if ns}
        for phase in tree
        if phase.time_ns
    ]
    assert [found[at] for at in sorted(found)] == [pytest.approx(each) for each in wanted]
    assert axes.get_xlim()[0] == 0


def test_a_phase_is_named_by_its_path_with_its_time_beside_it() -> None:
    figure = drawn(phases.draw_phases, Results([training()]))
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["step", "step/forward", "step/loss", "(outside ranges)"]
    assert "52.0 ms" in [text.strip() for text in texts(figure)]  # forward


def test_phases_that_have_no_room_are_counted() -> None:
    rows = [
        {"path": f"part{at}", "depth": 1, "instances": 1, "busy_ns": at * MS}
        for at in range(1, PHASES + 4)
    ]
    window_ns = sum(at * MS for at in range(1, PHASES + 4))
    figure = drawn(phases.draw_phases, results(phases=rows, accounting=[device(window_ns)]))
    assert any("3 shorter phases are not shown" in text for text in texts(figure))


def test_without_ranges_there_is_no_figure() -> None:
    assert phases.draw_phases(results(accounting=[device(9 * MS)])) is None
