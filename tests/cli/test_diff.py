"""`nsysflow diff`: what it takes, prints and refuses."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nsysflow.cli.diff import spread
from nsysflow.cli.main import main
from tests.reports import SAMPLES
from tests.sharing import shared_analyses

PAIRS = [
    ("nan_check-sync", "nan_check-async", "idle", "sync"),
    ("dataload-sync", "dataload-async", "idle", "sync"),
    ("h2d-pageable", "h2d-pinned", "idle", "blocking_copy"),
    ("launch_bound-eager-plain", "launch_bound-graph", "idle", "launch"),
    ("metrics-each_step", "metrics-at_end", "idle", "blocking_copy"),
    ("sum_many-loop", "sum_many-fused", "idle", "launch"),
    ("overlap-in_turn", "overlap-side_stream", "copies", None),
    ("alloc_churn-empty_cache", "alloc_churn-cached", "idle", "alloc"),
    ("graph_break-breaks", "graph_break-fullgraph", "idle", "sync"),
    ("trainforward-fused", "trainforward-graph", "idle", "host"),
    ("trainstep-fused", "trainstep-graph", "idle", "host"),
    ("fusion-eager", "fusion-fused", "compute", "elementwise"),
]
"""Before, after, and the part of the bridge that was made to change."""


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """Commands on a sample share its analysis."""
    with shared_analyses():
        yield


def sample(name: str) -> str:
    return str(SAMPLES / f"{name}.sqlite.xz")


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["diff", *arguments])


def ranks(variant: str) -> list[str]:
    return [sample(f"ddp-{variant}-rank{rank}") for rank in (0, 1)]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report.json of a sample."""
    folder = tmp_path_factory.mktemp("analysed") / "before"
    done = CliRunner().invoke(main, ["analyze", sample("nan_check-sync"), "-o", str(folder)])
    assert done.exit_code == 0, done.output
    return folder / "report.json"


@pytest.mark.parametrize(("before", "after", "part", "kind"), PAIRS)
def test_what_was_made_to_change_leads_the_bridge(
    before: str, after: str, part: str, kind: str | None
) -> None:
    done = diff("--json", "--force", sample(before), sample(after))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    bridge, first = found["bridge"], found["bridge"]["parts"][0]
    assert (first["part"], first["kind"]) == (part, kind)
    assert first["change_ns"] < 0 > bridge["change_ns"]
    assert found["change"]["shift_pct"] < 0
    assert sum(each["change_ns"] for each in bridge["parts"]) == bridge["change_ns"]


def test_a_report_against_its_report_json_is_all_zero(document: Path) -> None:
    done = diff("--json", sample("nan_check-sync"), str(document))
    found = json.loads(done.stdout)
    assert found["change"]["shift_pct"] == 0
    assert found["bridge"]["change_ns"] == 0
    rows = [row for part in found["bridge"]["parts"] for row in part["rows"]]
    assert {(row["change_ns"], row["status"]) for row in rows} == {(0, "same")}


def test_the_csv_sums_to_the_change_of_the_step() -> None:
    sides = sample("nan_check-sync"), sample("nan_check-async")
    rows = list(csv.DictReader(io.StringIO(diff("--csv", *sides).stdout)))
    bridge = json.loads(diff("--json", *sides).stdout)["bridge"]
    assert sum(int(row["change_ns"]) for row in rows) == bridge["change_ns"]


def test_the_page_says_what_changed_where() -> None:
    done = diff(sample("nan_check-sync"), sample("nan_check-async"))
    assert done.exit_code == 0
    assert "nan_check-sync → nan_check-async · NVIDIA H200 · 5 steps each" in done.stdout
    assert "idle: waiting in a sync" in done.stdout
    assert (
        "nan_check.py:125 in check"
        in diff("--full", sample("nan_check-sync"), sample("nan_check-async")).stdout
    )


def test_the_markdown_folds_all_but_the_bridge() -> None:
    text = diff("--md", sample("nan_check-sync"), sample("nan_check-async")).stdout
    assert text.startswith("<!-- nsysflow diff -->\n### ")
    assert text.index("#### Bridge") < text.index("<details>") < text.index("#### Phases")
    assert text.endswith("</details>\n")


def test_ranks_are_one_capture() -> None:
    found = json.loads(diff("--json", *ranks("no_overlap"), *ranks("bucketed")).stdout)
    assert [each["ranks"] for each in (*found["base"], *found["new"])] == [2, 2]
    assert found["bridge"]["parts"][0]["part"] == "communication"
    assert len(found["ranks"]) == 2


def test_ranks_of_one_capture_alone_are_no_two_captures() -> None:
    done = diff(*ranks("bucketed"))
    assert done.exit_code == 2
    assert "ranks of one capture" in done.output


def test_sides_take_several_captures(document: Path, tmp_path: Path) -> None:
    copies = []
    for number in range(6):
        copies.append(tmp_path / f"{number}.json")
        copies[-1].write_bytes(document.read_bytes())
    names = [str(each) for each in copies]
    found = json.loads(diff("--json", "--base", *names[:3], "--new", *names[3:]).stdout)
    assert (found["change"]["unit"], found["change"]["verdict"]) == ("run", "no significant change")
    assert [each["capture"] for each in found["new"]] == ["3", "4", "5"]


def test_more_than_two_captures_are_a_table_over_time() -> None:
    names = [sample(f"h2d-{name}") for name in ("pageable", "pinned_blocking", "pinned")]
    done = diff(*names)
    assert "Steps over time" in done.stdout
    rows = json.loads(diff("--json", *names).stdout)
    assert [row["capture"] for row in rows] == ["h2d-pageable", "h2d-pinned_blocking", "h2d-pinned"]
    assert rows[0]["since_first_pct"] is None
    assert rows[2]["since_first_pct"] < rows[1]["since_first_pct"] < 0
    assert diff("--md", *names).stdout.count("| h2d-") == 3
    assert len(diff("--csv", *names).stdout.splitlines()) == 4


def test_other_programs_are_compared_only_with_force() -> None:
    sides = sample("nan_check-sync"), sample("launch_bound-graph")
    done = diff(*sides)
    assert done.exit_code == 1
    assert "different programs" in done.stderr
    assert "--force" in done.stderr
    assert "Forced in spite of different programs" in diff("--force", *sides).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give two captures"),
        (["a"], "give two captures"),
        (["--base", "a"], "--new is missing"),
        (["--new", "a", "b"], "--base is missing"),
        (["a", "--base", "b", "--new", "c"], "not all of them"),
    ],
)
def test_half_a_comparison_is_refused(arguments: list[str], said: str) -> None:
    done = diff(*arguments)
    assert done.exit_code == 2
    assert said in done.output


def test_an_older_report_json_is_refused_with_what_to_type(document: Path, tmp_path: Path) -> None:
    older = tmp_path / "report.json"
    older.write_text(document.read_text().replace('"schema": 4', '"schema": 3', 1))
    done = diff(str(older), str(document))
    assert done.exit_code == 1
    assert "an older nsysflow wrote" in done.stderr
    assert "nsysflow analyze REPORT -o" in done.stderr


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
