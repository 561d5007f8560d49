import csv
import io
import json
from pathlib import Path

import pytest

from nsysflow.cli.diff import spread
from tests.cli.running import imported, refused, run
from tests.reports import SAMPLES

pytestmark = pytest.mark.usefixtures("shared")

PAIRS = [
    ("nan_check-sync", "nan_check-async", "idle", "sync"),
    ("overlap-in_turn", "overlap-side_stream", "copies", None),
    ("fusion-eager", "fusion-fused", "compute", "elementwise"),
]
"""Before, after, and the part of the bridge that was made to change."""


def sample(name: str) -> str:
    return str(SAMPLES / f"{name}.sqlite.xz")


SIDES = sample("nan_check-sync"), sample("nan_check-async")
RANKS = [sample(f"ddp-{way}-rank{rank}") for way in ("no_overlap", "bucketed") for rank in (0, 1)]
H2D = [sample(f"h2d-{way}") for way in ("pageable", "pinned_blocking", "pinned")]


def diff(*words: str | Path) -> str:
    """What it prints."""
    return run("diff", *words).stdout


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report.json of a sample."""
    folder = tmp_path_factory.mktemp("analysed") / "before"
    run("analyze", SIDES[0], "-o", folder)
    return folder / "report.json"


@pytest.mark.parametrize(("before", "after", "part", "kind"), PAIRS)
def test_the_change_leads_the_bridge(before: str, after: str, part: str, kind: str | None) -> None:
    found = json.loads(diff("--json", "--force", sample(before), sample(after)))
    bridge, first = found["bridge"], found["bridge"]["parts"][0]
    assert (first["part"], first["kind"]) == (part, kind)
    assert first["change_ns"] < 0 > bridge["change_ns"]
    assert found["change"]["shift_pct"] < 0


def test_two_report_json_are_compared_without_polars(document: Path) -> None:
    _, modules = imported("diff", document, document)
    assert "polars" not in modules


def test_a_report_against_its_report_json_is_all_zero(document: Path) -> None:
    found = json.loads(diff("--json", SIDES[0], document))
    assert found["change"]["shift_pct"] == found["bridge"]["change_ns"] == 0
    rows = [row for part in found["bridge"]["parts"] for row in part["rows"]]
    assert {(row["change_ns"], row["status"]) for row in rows} == {(0, "same")}


def test_the_csv_sums_to_the_change_of_the_step() -> None:
    rows = csv.DictReader(io.StringIO(diff("--csv", *SIDES)))
    bridge = json.loads(diff("--json", *SIDES))["bridge"]
    assert sum(int(row["change_ns"]) for row in rows) == bridge["change_ns"]


def test_the_markdown_folds_all_but_the_bridge() -> None:
    text = diff("--md", *SIDES)
    assert text.startswith("<!-- nsysflow diff -->\n### ")
    assert text.index("#### Bridge") < text.index("<details>") < text.index("#### Phases")
    assert text.endswith("</details>\n")


def test_ranks_are_one_capture_and_alone_no_two_captures() -> None:
    found = json.loads(diff("--json", *RANKS))
    assert [each["ranks"] for each in (*found["base"], *found["new"])] == [2, 2]
    assert found["bridge"]["parts"][0]["part"] == "communication"
    assert len(found["ranks"]) == 2
    assert "ranks of one capture" in refused("diff", *RANKS[2:])


def test_more_than_two_captures_are_a_table_over_time() -> None:
    assert "Steps over time" in diff(*H2D)
    rows = json.loads(diff("--json", *H2D))
    assert [row["capture"] for row in rows] == ["h2d-pageable", "h2d-pinned_blocking", "h2d-pinned"]
    assert rows[0]["since_first_pct"] is None
    assert rows[2]["since_first_pct"] < rows[1]["since_first_pct"] < 0
    assert diff("--md", *H2D).count("| h2d-") == 3
    assert len(diff("--csv", *H2D).splitlines()) == 4


def test_other_programs_are_compared_only_with_force() -> None:
    sides = SIDES[0], sample("launch_bound-graph")
    said = refused("diff", *sides, code=1)
    assert "different programs" in said
    assert "--force" in said
    assert "Forced in spite of different programs" in diff("--force", *sides)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--base a b --new c", "--base a --base b --new c"),
        ("--base a --json --new b c", "--base a --json --new b --new c"),
        ("a b --md", "a b --md"),
        ("--step s a b", "--step s a b"),
        ("--base --new c", "--base --new c"),
        ("--base=a --new=b", "--base=a --new=b"),
    ],
)
def test_a_side_takes_all_paths_that_follow(typed: str, meant: str) -> None:
    assert spread(typed.split()) == meant.split()
