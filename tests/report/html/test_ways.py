"""From findings, rows and steps there is a way to their place in the timeline."""

import re
from typing import Any

from tests.browser import opened
from tests.report.html.made import made


def view(page: Any) -> tuple[float, float]:
    """What the timeline shows, as the address says it."""
    page.wait_for_timeout(400)  # the address is written a little later
    found = re.search(r"t=(-?\d+),(\d+)", page.url)
    assert found
    return float(found[1]), float(found[2])


def ready(page: Any) -> None:
    """Wait for the timeline to be drawn."""
    page.wait_for_selector("[data-timeline=ready]", state="attached")


def test_a_finding_leads_to_its_longest_gap(browser: Any) -> None:
    with opened(browser, made("nan_check-sync").file) as page:
        ready(page)
        before = view(page)
        page.click("text=Show in the timeline >> nth=0")
        start, end = view(page)
        assert page.evaluate("document.activeElement.id") == "timeline-canvas"
    gap_ns = 640_000  # `nsysflow explain 1` names it: 640 us
    assert gap_ns <= end - start < 2 * gap_ns < before[1] - before[0]


def test_a_row_with_a_time_leads_there(browser: Any) -> None:
    run = made("ddp-bucketed-rank0", "ddp-bucketed-rank1")
    with opened(browser, run.file) as page:
        ready(page)
        page.click("#tab-syncs")
        page.click(".grid tbody button.go >> nth=0")
        start, end = view(page)
        blocked = page.get_attribute('.grid td[data-key="/syncs/0/blocked_ns"]', "data-value")
    assert int(blocked) <= end - start <= 1.5 * int(blocked)


def test_a_kernel_is_searched_in_the_timeline(browser: Any) -> None:
    run = made("nan_check-sync")
    with opened(browser, run.file) as page:
        ready(page)
        page.click(".grid tbody button.go >> nth=0")
        assert page.input_value("#timeline-search") == run.document["kernels"][0]["short_name"]


def test_a_step_is_chosen_by_keyboard_and_shown(browser: Any) -> None:
    run = made("nan_check-sync")
    step = run.document["steps"]["rows"][2]
    with opened(browser, run.file) as page:
        ready(page)
        page.focus(".strip")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        said = page.get_attribute(".strip", "aria-valuetext")
        page.keyboard.press("Enter")
        start, end = view(page)
    assert said.startswith("step 2: 4.0")
    assert step["duration_ns"] <= end - start < 1.5 * step["duration_ns"]


def test_the_address_names_the_table_and_opens_it(browser: Any) -> None:
    run = made("nan_check-sync")
    with opened(browser, run.file) as page:
        page.click("#tab-gaps")
        page.wait_for_timeout(400)
        assert "tab=gaps" in page.url
    with opened(browser, run.file, at="#tab=gaps") as page:
        assert page.get_attribute("#tab-gaps", "aria-selected") == "true"
