"""The idle flame graph, the heat map of many ranks, and names of any letters, which are text."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import expect

import nsysflow
from nsysflow.report.flamegraph import boxes
from tests import tiny
from tests.analyses import analysed
from tests.browser import FITS, opened, wait_until
from tests.report.html.made import made, made_of, page_of_many_ranks, run_of_these, spoken

SAMPLED: Final = "h200-hf-trainer"
FOCUSED: Final = "document.activeElement.textContent"


@pytest.fixture
def flame(browser: Any) -> Iterator[Any]:
    """The page of a report with Python samples."""
    with opened(browser, made(SAMPLED).file) as page:
        yield page


def shown(page: Any) -> Any:
    """The names of the boxes that are shown."""
    return page.locator(".flame button:visible").all_text_contents()


def test_the_boxes_are_those_of_the_svg_file_and_arrow_keys_go_between_them(flame: Any) -> None:
    root, names = boxes(analysed(SAMPLED).judged.idle_stacks), shown(flame)
    assert flame.locator(".flame button").first.get_attribute("data-value") == str(root.ns)
    assert names[1] == root.widest_first[0].place.name
    flame.locator(".flame button").first.focus()
    for key, name in (("ArrowDown", names[1]), ("ArrowUp", names[0])):
        flame.keyboard.press(key)
        assert flame.evaluate(FOCUSED) == name


def test_a_click_enlarges_a_box_and_escape_shows_all(flame: Any) -> None:
    before = shown(flame)
    cause = flame.locator(".flame-cause").nth(1)
    cause.click()
    whole = flame.locator(".flame").bounding_box()
    assert cause.bounding_box()["width"] == pytest.approx(whole["width"], abs=1)
    assert len(shown(flame)) < len(before)
    flame.keyboard.press("Escape")
    assert shown(flame) == before


def test_what_is_found_is_marked_and_summed(flame: Any) -> None:
    flame.fill("#flame input", "no such function")
    assert flame.inner_text("#flame [role=status]") == "not found"
    flame.fill("#flame input", "all idle time")
    assert flame.inner_text("#flame [role=status]") == "100 % of the idle time"
    assert flame.locator(".flame .found").count() == 1


@pytest.fixture
def ranks(browser: Any) -> Iterator[Any]:
    """The page of many ranks."""
    with opened(browser, page_of_many_ranks()) as page:
        yield page


def said(page: Any) -> str:
    """What is said of the chosen rank and step."""
    return spoken(page.get_attribute("#ranks canvas", "aria-valuetext"))


def test_a_page_begins_with_the_straggler_and_a_heat_map_where_it_is_hottest(ranks: Any) -> None:
    assert ranks.inner_text("#title") == "64 ranks"
    first = spoken(ranks.locator("#verdict .headline").first.inner_text())
    assert first.startswith("rank37 holds up the other 63 ranks: 1.00 ms")
    assert said(ranks) == (
        "rank37, step 0: step 10.0 ms, own time 9.00 ms;"
        " 10 % of a step more than the median rank; costs the others 1.00 ms"
    )
    read = """canvas => [...canvas.getContext("2d").getImageData(0, 35, 1, 3).data]"""
    pixels = ranks.locator("#ranks canvas").evaluate(read)
    before, usual, hot = pixels[:4], pixels[4:8], pixels[8:]
    assert before == usual != hot


def test_arrow_keys_and_the_pointer_choose_a_rank_and_a_step(ranks: Any) -> None:
    ranks.focus("#ranks canvas")
    ranks.keyboard.press("ArrowUp")
    ranks.keyboard.press("ArrowRight")
    assert said(ranks).startswith("rank36, step 1: ")
    ranks.keyboard.press("End")
    assert said(ranks).startswith("rank36, step 19: ")
    ranks.hover("#ranks canvas", position={"x": 1, "y": 1})
    expect(ranks.locator("#ranks .readout")).to_contain_text("rank0, step 0: ")


def test_few_ranks_have_no_heat_map(browser: Any) -> None:
    with opened(browser, made("h200-ddp-rank0").file) as page:
        assert page.locator("#ranks").is_hidden()


MARKUP: Final = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
QUOTES: Final = 'it\'s "quoted" `so` &amp; &lt;b&gt; ${window.broken = 3} {title} {script} \\u003c'
RIGHT_TO_LEFT: Final = "שלום_ליבה \u202egnp.exe"
BOLD: Final = "<b>metrics</b>"
LONG: Final = "very_" * 1000
NAMES: Final = (MARKUP, QUOTES, RIGHT_TO_LEFT, BOLD, LONG, "tab\there\nline \x1b[31mred\x07")


@pytest.fixture(scope="module")
def file() -> Path:
    """The page of a run in which everything has such a name."""
    rows: list[tiny.Row] = []
    for number, name in enumerate(NAMES):
        start = number * 100_000
        rows += [
            tiny.opened(start, start + 90_000, name),
            tiny.launch(start + 10, start + 2_000, number),
            tiny.kernel(start + 20_000, start + 30_000, number, name=name),
            tiny.call(start + 40_000, start + 80_000, "cudaDeviceSynchronize"),
        ]
    trace = replace(tiny.trace_of(*rows), report=MARKUP)
    run = run_of_these(nsysflow.analyze(trace), paths={MARKUP: Path(f"{BOLD}.sqlite")})
    return made_of(run).file


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    with opened(browser, file) as page:
        yield page


def test_a_name_is_shown_letter_for_letter_and_runs_nothing(page: Any) -> None:
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.locator("img, main b:has-text('metrics')").count() == 0
    page.click("#tab-kernels")
    tables, phases = (page.locator(f"#{id}").text_content() for id in ("tables", "phases"))
    assert [name for name in NAMES[:4] if name not in tables] == []
    assert [name for name in (RIGHT_TO_LEFT, BOLD) if name not in phases] == []
    canvas = page.locator("#timeline-canvas")
    canvas.press("/")
    page.keyboard.type("<script>")
    page.keyboard.press("Enter")
    expect(page.locator("#timeline-details")).to_contain_text(MARKUP)
    assert page.evaluate("window.broken ?? null") is None


def test_a_very_long_name_is_cut_and_whole_on_demand(page: Any) -> None:
    cut = page.locator(f'.phases [data-tip="{LONG}"]')
    assert len(str(cut.text_content())) < 200
    cut.focus()
    expect(page.locator("#tip")).to_have_text(LONG)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        wait_until(page, f"innerWidth === {width} && {FITS}")


def test_a_name_that_runs_to_the_left_does_not_turn_what_stands_beside_it(page: Any) -> None:
    names = page.locator("main bdi", has_text="שלום").all()
    assert names
    for name in names:
        assert name.evaluate("each => getComputedStyle(each).unicodeBidi") == "isolate"
