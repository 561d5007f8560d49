import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.tables.copies import EACH_COPY
from nsysflow.analysis.tables.gaps import GAP_SUMMARY
from nsysflow.analysis.tables.syncs import SYNCS
from nsysflow.compare.document import SCHEMA_VERSION
from nsysflow.runs import analyze as runs_analyze
from nsysflow.runs.engine import Choice
from nsysflow.runs.manifest import write_manifest
from tests.analyses import analysed
from tests.cli.running import refused, run
from tests.disks import names
from tests.report.handmade import MS, Results, training
from tests.reports import DATA, ROOT, SAMPLES
from tests.runs.runs import RUN

pytestmark = pytest.mark.usefixtures("shared")

FILES = [
    "comm.csv", "copies.csv", "findings.csv", "gap-report.csv", "gap-report.md", "gap_summary.csv",
    "gaps.csv", "kernels.csv", "launches.csv", "phases.csv", "report.json", "run.csv",
    "starved.csv", "steps.csv", "summary.md", "syncs.csv", "waited.csv",
]  # fmt: skip

Asked = list[tuple[Options, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Replace the analysis by the hand-made training run; holds what it was asked with."""
    seen: Asked = []

    def analysed(_reports: object, options: Options, **how: object) -> Results:
        seen.append((options, how))
        return Results([training()])

    monkeypatch.setattr(runs_analyze, "analyze_reports", analysed)
    return seen


@pytest.fixture
def here(here: Path, asked: Asked) -> Path:
    """The working folder, with a report of no content in it."""
    (here / "run.sqlite").write_bytes(b"")
    return here


def test_a_page_is_printed_and_the_files_lie_beside_the_report(here: Path) -> None:
    done = run("analyze", "run.sqlite")
    assert "49 % computing, 30 % waiting for the host" in done.stdout
    assert names(here / "run.sqlite.nsysflow") == FILES
    assert "wrote run.sqlite.nsysflow" in done.stderr
    assert "wrote" not in done.stdout


def test_no_files_writes_nothing_and_full_prints_all(here: Path) -> None:
    page = run("analyze", "run.sqlite", "--no-files").stdout
    full = run("analyze", "run.sqlite", "--no-files", "--full").stdout
    assert "\x1b" not in page + full
    for title in ("Longest gaps", "Copies", "Data quality"):
        assert title not in page
        assert title in full
    assert names(here) == ["run.sqlite"]


def test_another_folder_is_refused_before_any_work_unless_forced(here: Path, asked: Asked) -> None:
    (here / "out").mkdir()
    (here / "out" / "thesis.tex").write_text("mine")
    assert refused("analyze", "run.sqlite", "-o", "out", code=1).startswith("nsysflow: out exists")
    assert asked == []
    assert names(here / "out") == ["thesis.tex"]
    run("analyze", "run.sqlite", "-o", "out", "--force")
    assert names(here / "out") == sorted([*FILES, "thesis.tex"])


def test_one_table_is_printed_in_the_form_that_is_asked_for_and_nothing_written(here: Path) -> None:
    def table(*words: str) -> bytes:
        return run("analyze", "run.sqlite", *words).stdout_bytes

    rows = pl.read_csv(table("--table", "syncs", "--format", "csv"))
    assert rows.columns == list(SYNCS)
    assert rows["induced_idle_ns"].to_list() == [8 * MS, 0]
    types = pl.read_parquet(io.BytesIO(table("--table", "syncs", "--format", "parquet"))).schema
    assert types == SYNCS
    for form in ("md", "table"):
        assert b"cudaDeviceSynchronize" in table("--table", "syncs", "--format", form)
    assert pl.read_csv(table("--table", "syncs", "--format", "csv", "--top", "1")).height == 1
    assert pl.read_csv(table("--format", "csv")).columns == list(GAP_SUMMARY)
    assert json.loads(table("--json"))["schema"] == SCHEMA_VERSION
    assert names(here) == ["run.sqlite"]


def test_gaps_go_to_stdout_or_one_file_and_never_into_the_report(here: Path) -> None:
    long = run("analyze", "run.sqlite", "--gaps-csv", "-", "--min-gap-us", "10000").stdout
    assert [line.split(",")[2] for line in long.splitlines()] == ["gap", "7"]
    assert run("analyze", "run.sqlite", "--gaps-csv", "gaps.csv").stdout == ""
    assert len((here / "gaps.csv").read_text().splitlines()) == 3
    itself = ("analyze", "run.sqlite", "--gaps-csv", "./run.sqlite")
    assert "is the report itself" in refused(*itself, code=1)
    assert (here / "run.sqlite").read_bytes() == b""
    assert names(here) == ["gaps.csv", "run.sqlite"]


@pytest.mark.usefixtures("here")
def test_several_reports_need_a_folder() -> None:
    assert "-o DIR" in refused("analyze", "run.sqlite", "rank1.sqlite")
    assert "several reports need -o DIR" in refused("analyze", "rank*.sqlite")
    run("analyze", "run.sqlite", "rank1.sqlite", "--table", "syncs")
    run("analyze", "run.sqlite", "rank1.sqlite", "-o", "both")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "wrong",
    [
        *("--steps !", "--steps 5:5", "--from soon", "--table nothing", "--top 0", "--workers 0"),
        *("--framework-gap-us nan", "--framework-gap-us -1", "--min-gap-us -0.5"),
        *("--flops-per-step=0", "--flops-per-step=nan", "--flops-per-step=1e19"),
        *("--json --table gaps", "--full --json", "-o out --no-files"),
        *("--executor threads --scheduler slurm", "--workers 2 --scheduler tcp://a:1"),
    ],
)
def test_bad_usage_exits_with_two_and_names_the_option(wrong: str) -> None:
    assert wrong.split("=")[0].split()[0] in refused("analyze", "run.sqlite", *wrong.split())


@pytest.mark.usefixtures("here")
def test_options_arrive_in_ns(asked: Asked) -> None:
    words = (
        "analyze run.sqlite --table syncs --device 1 --range train --step iter"
        " --from 8800.123456789 --to 9e3 --skip 3 --steps 2: --steps !7 --framework-gap-us 12.5"
        " --domain NCCL --domain -mine"
    )
    run(*words.split())
    ((options, _),) = asked
    assert options == Options(
        framework_gap_ns=12_500, domains_added=("NCCL",), domains_removed=("mine",), device=1,
        range="train", from_ns=8_800_123_456_789, to_ns=9_000_000_000_000, step="iter",
        skip=3, steps=(StepPart(2), StepPart(7, 8, out=True)),
    )  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "choice", "strict"),
    [
        ("", Choice(), False),
        ("--strict", Choice(), True),
        ("--executor threads --workers 3", Choice(executor="threads", workers=3), False),
        ("--scheduler tcp://a:1", Choice(scheduler="tcp://a:1"), False),
    ],
)
def test_workers_reach_the_analysis(asked: Asked, words: str, choice: Choice, strict: bool) -> None:
    run("analyze", "run.sqlite", "--table", "syncs", *words.split())
    ((_, how),) = asked
    assert (how["choice"], how["strict"]) == (choice, strict)


def test_classes_of_kernels_come_from_a_file(here: Path, asked: Asked) -> None:
    (here / "classes.toml").write_text("[[class]]\nname = 'mine'\npattern = '^my_'\n")
    run("analyze", "run.sqlite", "--table", "syncs", "--kernel-classes", "classes.toml")
    ((options, _),) = asked
    assert options.kernel_classes == (("mine", "^my_"),)
    missing = refused("analyze", "run.sqlite", "--kernel-classes", "no.toml", code=1)
    assert "no.toml cannot be read" in missing


def test_without_a_report_the_newest_run_here_is_analysed(here: Path) -> None:
    assert refused("analyze", code=1).endswith(" nsysflow demo")
    (here / "run1").mkdir()
    write_manifest(here / "run1", RUN)
    assert run("analyze").stderr.startswith("analysing run1, the newest run here\n")
    assert (here / "run1" / "report.json").is_file()


def test_the_files_of_a_real_report_have_every_row_and_no_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(SAMPLES)
    run("analyze", "nan_check-sync.sqlite.xz", "-o", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    document["steps"] = document["steps"]["rows"]
    for name in ("phases", "syncs", "kernels", "copies", "launches", "gap_summary", "steps"):
        height = getattr(analysed("nan_check-sync"), name).height
        rows = pl.read_csv(tmp_path / "out" / f"{name}.csv", infer_schema=False)
        assert len(document[name]) == rows.height == height, name
    idle_ns = pl.read_csv(tmp_path / "out" / "gaps.csv")["duration_ns"].sum()
    assert idle_ns == document["devices"][0]["idle_ns"]
    assert not [file for file in (tmp_path / "out").iterdir() if str(ROOT) in file.read_text()]


def test_copies_as_parquet_are_each_copy_and_add_up_to_the_table() -> None:
    words = ("analyze", DATA / "h200-train.sqlite.xz", "--table", "copies", "--format")
    each = pl.read_parquet(io.BytesIO(run(*words, "parquet").stdout_bytes))
    table = pl.read_csv(run(*words, "csv").stdout_bytes)
    assert each.schema == EACH_COPY
    for direction, count, size in (
        table.group_by("direction").agg(pl.col("count", "bytes").sum()).iter_rows()
    ):
        alike = each.filter(pl.col("direction") == direction)
        assert (alike.height, alike["bytes"].sum()) == (count, size)
