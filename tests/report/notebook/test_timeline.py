"""The small timeline shows the first judged steps."""

import nsysflow
from nsysflow import Options, StepPart
from nsysflow.report.notebook import MOST_GPUS, STEPS, timeline, windows_of
from nsysflow.report.results import Results
from tests.analyses import analysed, few_reports, loaded, run_of
from tests.report.handmade import MS, device, results
from tests.report.notebook.read import boxes, title_of, words


def test_the_first_judged_steps_are_shown() -> None:
    (window,) = windows_of(run_of("nan_check-sync"))
    steps = run_of("nan_check-sync").steps.filter(run_of("nan_check-sync").steps["step"] > 0)
    first, second = steps.select("step", "start_ns", "end_ns").rows()[:STEPS]
    assert window.steps == [(first[0], first[1]), (second[0], second[1])]
    assert (window.start_ns, window.end_ns) == (first[1], second[2])


def test_steps_that_do_not_follow_each_other_are_not_shown_together() -> None:
    options = Options(steps=(StepPart(1, 2), StepPart(3, 4)))
    run = Results([nsysflow.analyze(loaded("nan_check-sync"), options)])
    (window,) = windows_of(run)
    assert [number for number, _ in window.steps] == [1]


def test_without_judged_steps_the_window_is_shown() -> None:
    run = results(accounting=[device(9 * MS, start_ns=2 * MS, end_ns=11 * MS)])
    (window,) = windows_of(run)
    assert (window.start_ns, window.end_ns) == (2 * MS, 11 * MS)
    assert [*window.steps] == []


def test_boxes_say_what_they_show() -> None:
    titles = {title_of(each) for each in boxes(timeline(run_of("nan_check-sync")))}
    assert titles == {
        "compute",
        "copy",
        "idle: host code",
        "idle: queue delay",
        "idle: waiting in a sync",
    }


@few_reports
def test_there_are_few_boxes_and_all_lie_in_the_picture(name: str) -> None:
    found = boxes(timeline(run_of(name)))
    assert len(found) < 1000
    for each in found:
        assert float(each.attrib["x"]) + float(each.attrib["width"]) <= 760.01


def test_of_many_gpus_the_first_are_shown() -> None:
    name = "ddp-bucketed-rank0"
    run = Results([analysed(name)] * (MOST_GPUS + 2))
    assert words(f"<div>{timeline(run)}</div>").count("stream 17") == MOST_GPUS


def test_without_gpu_work_there_is_no_timeline() -> None:
    assert timeline(results()) == ""
