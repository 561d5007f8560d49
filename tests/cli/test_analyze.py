"""The command line on real reports, in a process of its own."""

import hashlib
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from nsysflow.analysis.tables.copies import EACH_COPY
from tests.analyses import SCHEMAS
from tests.breaking import MIDDLE_THIRD_GONE, broken
from tests.reports import DATA, ROOT, SAMPLES

GPT2 = DATA / "h200-gpt2-eager.sqlite.xz"
RANKS = [DATA / f"h200-ddp-rank{rank}.sqlite.xz" for rank in range(2)]


def nsysflow(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    code = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `nsysflow analyze` writes of the GPT-2 report."""
    folder = tmp_path_factory.mktemp("gpt2") / "out"
    before = hashlib.sha256(GPT2.read_bytes()).digest()
    done = nsysflow("analyze", GPT2.relative_to(ROOT), "-o", folder)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(GPT2.read_bytes()).digest() == before
    (folder / "page.txt").write_text(done.stdout)
    return folder


def test_the_screen_names_the_largest_loss_and_where_the_host_was(written: Path) -> None:
    page = (written / "page.txt").read_text().splitlines()
    verdict = page[page.index("") + 1]  # what is above says of what
    assert verdict == "compute-bound (72 %); largest loss: host and launch, 21 %"
    largest = page[page.index(next(line for line in page if line.startswith("  idle: ")))]
    assert largest.startswith("  idle: host code 4.80 ms 11 %, ")
    between = next(line for line in page if line.startswith("  (outside ranges)"))
    assert "581 us" in between
    assert len(page) <= 45


@pytest.mark.parametrize("table", ["gaps", "gap_summary", "steps"])
def test_the_files_add_up_to_the_idle(written: Path, table: str) -> None:
    (device,) = json.loads((written / "report.json").read_text())["devices"]
    frame = pl.read_csv(written / f"{table}.csv", infer_schema_length=None)
    column = {"gaps": "duration_ns", "gap_summary": "total_ns", "steps": "idle_ns"}[table]
    assert frame[column].sum() == device["idle_ns"] == sum(device["causes"].values())


def test_the_csv_files_read_back_as_their_schemas(written: Path) -> None:
    for name, of in SCHEMAS.items():
        file = written / f"{name}.csv"
        if file.exists():
            assert pl.read_csv(file, schema=of).height >= 0


def test_the_document_holds_the_rows_of_the_files(written: Path) -> None:
    document = json.loads((written / "report.json").read_text())
    document["steps"] = document["steps"]["rows"]
    for name in ("phases", "syncs", "kernels", "copies", "launches", "gap_summary", "steps"):
        file = pl.read_csv(written / f"{name}.csv", schema=SCHEMAS[name])
        assert len(document[name]) == file.height


def test_no_file_tells_of_the_traced_machine(written: Path) -> None:
    for file in written.iterdir():
        text = file.read_text()
        assert str(ROOT) not in text
        assert "/home/" not in text


def test_two_ranks_are_one_run(tmp_path: Path) -> None:
    done = nsysflow("analyze", *RANKS, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "run" / "report.json").read_text())
    assert [device["report"] for device in document["devices"]] == [
        "h200-ddp-rank0",
        "h200-ddp-rank1",
    ]
    assert "2 x NVIDIA H200" in done.stdout


def test_the_demo_needs_nothing_and_says_what_to_type_next() -> None:
    done = nsysflow("demo")
    assert done.returncode == 0, done.stderr
    assert "nan_check.py:125 in check" in done.stdout
    assert "nsysflow profile" in done.stdout.splitlines()[-1]


def test_a_packed_report_gives_the_same_screen(tmp_path: Path) -> None:
    small = tmp_path / GPT2.name
    packed = nsysflow("pack", GPT2, "-o", small)
    assert (packed.returncode, packed.stdout) == (0, ""), packed.stderr
    plain, of_small = (
        " ".join(nsysflow("analyze", report, "--no-files").stdout.split()).replace(
            f"nsysflow explain 1 {report} ", "EXPLAIN "
        )
        for report in (GPT2, small)
    )
    assert " in full: EXPLAIN GPU time " in plain
    assert plain == of_small


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"not a report at all", "not"), (b"SQLite format 3\0" + b"\0" * 99, "")],
    ids=["empty", "text", "a header alone"],
)
def test_what_is_no_report_is_refused_and_nothing_written(
    tmp_path: Path, content: bytes, said: str
) -> None:
    report = tmp_path / "run.sqlite"
    report.write_bytes(content)
    done = nsysflow("analyze", report)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("nsysflow: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.sqlite"]
    assert report.read_bytes() == content


def test_a_reader_that_leaves_early_is_no_error() -> None:
    code = "from nsysflow.cli.main import main; main()"
    shell = f"{sys.executable} -c '{code}' analyze {GPT2} --gaps-csv - | head -n 1"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("report,device,gap")
    assert done.stderr == ""


def test_copies_as_parquet_are_each_copy_and_add_up_to_the_table() -> None:
    code = "from nsysflow.cli.main import main; main(prog_name='nsysflow')"
    report = DATA / "h200-train.sqlite.xz"
    arguments = ["analyze", str(report), "--table", "copies", "--format", "parquet"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, check=True
    )
    each = pl.read_parquet(io.BytesIO(done.stdout))
    assert each.schema == EACH_COPY
    key = ["phase", "direction", "copy_label"]
    each = each.with_columns(pl.col("copy_label").cast(pl.String))
    sums = each.group_by(key).agg(pl.len().alias("count"), pl.col("bytes").sum()).sort(key)
    table = pl.read_csv(io.StringIO(nsysflow(*arguments[:-1], "csv").stdout))
    table = table.with_columns(pl.col("phase").fill_null(""))
    assert sums.rows() == table.select(*key, "count", "bytes").sort(key).rows()


def test_a_broken_recording_gets_its_tables_under_a_headline_of_its_own(tmp_path: Path) -> None:
    report = broken(tmp_path, "h200-train", MIDDLE_THIRD_GONE)
    done = nsysflow("analyze", report, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("Incomplete capture: 3,")
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"summary.md", "gaps.csv", "phases.csv"} <= files
    verdict = json.loads((tmp_path / "out" / "report.json").read_text())["verdict"]
    assert (verdict["valid"], verdict["why"]) == (False, "incomplete-capture")


def test_reports_that_are_no_ranks_name_a_command_that_works(tmp_path: Path) -> None:
    two = []
    for name in ("nan_check-sync", "h2d-pinned"):
        two.append(tmp_path / f"my {name}.sqlite.xz")
        two[-1].write_bytes((SAMPLES / f"{name}.sqlite.xz").read_bytes())
    done = nsysflow("analyze", *two, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert verdict["why"] == "unrelated-reports"
    program, *words = shlex.split(verdict["text"].partition(": ")[2])
    alone = nsysflow(*words)
    assert (program, alone.returncode) == ("nsysflow", 0)
    assert "compute-bound" in alone.stdout
