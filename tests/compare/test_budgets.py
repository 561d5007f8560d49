import json
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest

from nsysflow.analysis.options import Options
from nsysflow.base.errors import CheckError, UnknownName, WrongBudget
from nsysflow.compare.budget_pages import annotations, check_json, junit_xml, page, verdict_text
from nsysflow.compare.budgets import Limit, budget, figures_of, limits_of, ranks_of
from nsysflow.compare.captures import Capture
from nsysflow.compare.document import capture_of
from nsysflow.compare.judging import Culprit, Judgement
from nsysflow.report.document import compared_json
from nsysflow.runs.analyze import analyze_reports
from tests.compare.handmade import CROSSED, WITHIN, capture, measured, ranks, row, track
from tests.oracle.budgets import figures_of_document
from tests.reports import PACKED


@pytest.mark.parametrize(
    ("text", "name", "strict", "limit"),
    [
        ("step_ms<=5", "step_ms", False, 5.0),
        ("idle_pct<5", "idle_pct", True, 5.0),
        (" step_ms  <=  1.5e1 ", "step_ms", False, 15.0),
        ("step_us<=.5", "step_us", False, 0.5),
        ("kernel:void f<3>(int).ms<=2", "kernel:void f<3>(int).ms", False, 2.0),
        ("kernel:a<=b.count<4", "kernel:a<=b.count", True, 4.0),
        ("step_ms<=baseline", "step_ms", False, 1.0),
        ("step_ms<=baseline*1.05", "step_ms", False, 1.05),
        ("step_ms < 1.05 * baseline", "step_ms", True, 1.05),
    ],
)
def test_a_budget_is_a_name_and_a_limit(text: str, name: str, strict: bool, limit: float) -> None:
    found = budget(text)
    assert (found.name, found.strict, found.limit, found.rule) == (name, strict, limit, None)
    assert found.of_baseline == ("baseline" in text)


STEP = (("gemm", "step/forward"), ("relu", "step/forward/layer"), ("gemm", "step/backward/layer"))
FIGURES = figures_of([capture(*(row(1, name=name, phase=phase) for name, phase in STEP))])
FORWARD = "phase:step/forward.kernel_ms"


def limits(*texts: str) -> list[Limit]:
    return limits_of([budget(text) for text in texts], FIGURES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("step_ms<=5", ("step_ms", 5e6)),
        ("step_ns<=5", ("step_ms", 5)),
        ("idle_pct<5", ("idle_pct", 5)),
        ("sync.idle_behind_us<5", ("sync.idle_behind_ms", 5e3)),
        ("kernel:gemm.us<=5", ("kernel:gemm.ms", 5e3)),
        ("kernel:gemm.count<=5", ("kernel:gemm.count", 5)),
        ("step_us<=1.05*baseline", ("step_ms", 1.05)),
        (f"{FORWARD}<4", (FORWARD, 4e6)),
        ("phase:forward.kernel_ms<4", (FORWARD, 4e6)),
        ("phase:forward/layer.kernel_us<4", ("phase:step/forward/layer.kernel_ms", 4e3)),
    ],
)
def test_a_limit_is_in_the_unit_of_its_figure(text: str, wanted: tuple[str, float]) -> None:
    (found,) = limits(text)
    assert (found.figure.name, found.most) == wanted


NO_BUDGETS = (
    *("step_ms>=5", "step_ms==5", "step_ms=<5", "step_ms<=5ms", "idle_pct<5%"),
    *("", "step_ms", "step_ms<=", "<=5", "step_ms<=five", "step_ms<=-1", "step_ms<=nan"),
    *("step_ms<=inf", "step_ms<=1e999", "step_ms<=0*baseline", "step_ms<=1e999*baseline"),
    *("step_ms<=2*baseline*3", "finding:launch-bound<=0", "finding:=none"),
)
NO_LIMITS = (
    # such names are not there
    *(["stepms<=5"], ["phase:forwrd.kernel_ms<1"], ["phase:layer.kernel_ms<4"]),
    *(["idle_pct<=100"], ["step_ms<0"]),  # always or never kept
    *(["step_ms<=5", "step_ms<5"], ["step_ms<=5", "step_us<=6000"]),
    ["step_ms<=baseline", "step_ms<=2*baseline"],
    ["phase:forward.kernel_ms<4", f"{FORWARD}<5"],
)
"""What is said of them is in tests/report/pages/budgets.txt."""


def refused_budgets() -> Iterator[str]:
    for texts in (*([text] for text in NO_BUDGETS), *NO_LIMITS):
        with pytest.raises((WrongBudget, UnknownName)) as refused:
            limits("copies_ms<5", *texts)
        assert refused.value.exit_code == 2
        yield str(refused.value)


WINDOW = track(row(10_000), step_name=None, steps=[None], kinds=[None], process=None)
WAITS = track(row(10, name="embed"), row(90, part="idle", kind="sync"))


@pytest.mark.parametrize(
    ("found", "name", "values"),
    [
        # a step is that of the slowest rank, and a GPU without steps is no rank
        (ranks(WINDOW, WAITS, track(row(150))), "step_ms", [150]),
        (ranks(WAITS, track(row(150))), "sync.idle_behind_ms", [0]),
        # a kernel that this rank lacks is that of another one
        (ranks(WAITS, track(row(150))), "kernel:embed.ms", [10]),
        # shares are of the mean step, so that their mean is that of the times
        (capture(row(0, 4), row(0, 4, part="idle")), "idle_pct", [0, 100]),
    ],
)
def test_figures_are_of_the_slowest_rank(found: Capture, name: str, values: list[float]) -> None:
    assert figures_of([found])[name].values(found) == values


def test_a_capture_without_steps_is_refused_with_what_to_type() -> None:
    with pytest.raises(CheckError, match="--step NAME"):
        ranks_of(ranks(WINDOW))


@pytest.mark.parametrize(
    "names", [["nan_check-sync"], ["ddp-bucketed-rank0", "ddp-bucketed-rank1"]]
)
def test_the_oracle_has_the_same_figures(names: list[str]) -> None:
    paths, tables = [PACKED[each] for each in names], ("steps", "step_parts")
    text = compared_json(analyze_reports(paths, Options(), tables=tables))
    found = capture_of(text.encode(), names[0], names[0])
    figures = {each: figure.values(found) for each, figure in figures_of([found]).items()}
    assert figures == figures_of_document(json.loads(text))


CAPTURE = capture(row(1, 1), name="run")


def test_the_title_says_of_which_rank_a_step_is() -> None:
    two_ranks = ranks(track(row(1)), track(row(2)))
    title = next(page([WITHIN], [two_ranks]))
    assert title == "run · 2 x NVIDIA H200 · 1 step of the slowest rank"


def test_an_open_interval_is_valid_json() -> None:
    found = measured("step_ms<=baseline", "too noisy", 1, 1, high=float("inf"))
    assert json.loads(check_json([found], [CAPTURE]))["budgets"][0]["high"] is None


def test_junit_holds_names_that_xml_does_not() -> None:
    odd = measured("kernel:a\x00<&\x1b.ms<1", "crossed", 2, 1)
    (suite,) = ET.fromstring(junit_xml([odd], [CAPTURE]))
    assert suite[0].get("name") == "kernel:a\ufffd<&\ufffd.ms<1"


def test_an_annotation_of_a_file_that_is_not_here_has_no_place() -> None:
    (error,) = annotations([CROSSED], 1, lambda _: None)
    assert error.startswith("::error title=")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("a,b.py", "a%2Cb.py"),
        ("c:d.py", "c%3Ad.py"),
        ("e%\r\n.py", "e%25%0D%0A.py"),
        ("\x9b.py", "·.py"),
    ],
)
def test_what_ends_a_property_is_escaped(file: str, shown: str) -> None:
    culprit = Culprit(source="x.py:1", what="w")
    at = Judgement(budget=budget("finding:a=none"), verdict="crossed", culprits=(culprit,))
    (error,) = annotations([at], 1, lambda _: file)
    assert error.startswith(f"::error file={shown},line=1,")


BESIDE_A_BASELINE = {"factor": 1.0, "counted": "run", "low": None}


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (3, "too noisy: about 3 captures a side would tell"),
        (4138, "too noisy: no practical number of captures would tell"),
        (None, "too noisy: too close to the limit"),
    ],
)
def test_a_noisy_figure_says_what_would_tell(needed: int | None, said: str) -> None:
    noisy = measured("step_ms<=baseline", "too noisy", 1, 1, needed=needed, **BESIDE_A_BASELINE)
    assert verdict_text(noisy) == said
