import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from nsysflow.agents.folder import Folder, LruCache, list_reports
from nsysflow.agents.rows import Condition, Op, Query, page_of, require_known
from nsysflow.base.errors import SelectionError, UnknownName
from nsysflow.runs.manifest import write_manifest
from tests.report.handmade import frame
from tests.reports import parquetdir_report
from tests.runs.runs import RUN


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder with a report, beside which lies another one."""
    (tmp_path / "secret.sqlite").write_text("outside")
    root = tmp_path / "runs"
    root.mkdir()
    (root / "a.sqlite").write_text("inside")
    return Folder(root)


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        ("a.sqlite", "a.sqlite"),
        ("../runs/a.sqlite", "a.sqlite"),
        ("{root}/a.sqlite", "a.sqlite"),
        (".", "."),
        ("link.sqlite", "a.sqlite"),
    ],
)
def test_a_path_inside_is_taken(folder: Folder, typed: str, path: str) -> None:
    (folder.root / "link.sqlite").symlink_to("a.sqlite")
    assert folder.inside(typed.format(root=folder.root)) == folder.root / path


@pytest.mark.parametrize(
    "typed",
    [
        *("..", "../secret.sqlite", "../runs2/a.sqlite", "/etc/passwd", "sub/../../secret.sqlite"),
        *("a\0b", "link.sqlite", "up/secret.sqlite", "circle"),
    ],
)
def test_a_path_outside_is_refused_whether_it_exists_or_not(folder: Folder, typed: str) -> None:
    links = {"link.sqlite": "../secret.sqlite", "up": "..", "circle": "again", "again": "circle"}
    for name, target in links.items():
        (folder.root / name).symlink_to(target)
    assert not folder.holds(folder.root / "link.sqlite")
    with pytest.raises(SelectionError, match="is outside") as refused:
        folder.inside(typed)
    assert refused.value.command == "nsysflow mcp FOLDER"


@pytest.mark.parametrize("report", ["report.sqlite", "../../secret.sqlite"])
def test_a_run_with_a_link_or_a_name_that_leads_out_is_refused(folder: Folder, report: str) -> None:
    run = folder.root / "run"
    run.mkdir()
    write_manifest(run, replace(RUN, reports=(report,)))
    (run / "report.sqlite").symlink_to("../../secret.sqlite")
    with pytest.raises(SelectionError, match="is outside"):
        folder.files(run)


def test_threads_that_ask_at_once_get_the_same() -> None:
    kept: LruCache[object] = LruCache(2)
    together = Barrier(4)

    def ask(_: int) -> object:
        together.wait()
        return kept.get("a", object)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1


def made(folder: Path, *names: str, at: int = 0) -> None:
    """Files of these names, written at second `at`."""
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"12345")
        os.utime(file, (at, at))


def kinds(folder: Path) -> dict[str, str]:
    """What is listed, with its kind."""
    return {each.path: each.kind for each in list_reports(Folder(folder), 100).data.found}


def test_reports_of_every_kind_are_found_at_any_depth(tmp_path: Path) -> None:
    names = ("a.sqlite", "b/c.sqlite.xz", "b/d/e.nsys-rep", "b/x.pt.trace.json.gz")
    made(tmp_path, *names, "notes.txt", "b/config.json", ".hidden/f.sqlite", "__pycache__/g.sqlite")
    made(tmp_path, "a.sqlite.nsysflow/report.json", "a.sqlite.nsysflow/gaps.csv")
    tables = str(parquetdir_report(tmp_path / "tables").relative_to(tmp_path))
    reports = dict.fromkeys([*names, tables], "report")
    assert kinds(tmp_path) == reports | {"a.sqlite.nsysflow/report.json": "report.json"}


def test_a_run_is_one_entry_with_its_ranks_and_command(tmp_path: Path) -> None:
    made(tmp_path, "run/rank0.sqlite", "run/rank1.sqlite")
    write_manifest(tmp_path / "run", replace(RUN, reports=("rank0.sqlite", "rank1.sqlite")))
    (run,) = list_reports(Folder(tmp_path), 100).data.found
    assert (run.path, run.kind, run.bytes) == ("run", "run", 10)
    assert run.reports == ("rank0.sqlite", "rank1.sqlite")
    assert run.command == ("python", "train.py")


def test_links_that_lead_out_are_neither_listed_nor_read(tmp_path: Path) -> None:
    made(tmp_path, "secret.sqlite", "secrets/b.sqlite", "runs/a.sqlite")
    write_manifest(tmp_path, RUN)
    (tmp_path / "runs" / "run").mkdir()
    links = {"link.sqlite": "../secret.sqlite", "folder": "../secrets"}
    for name, target in {**links, "run/manifest.json": "../../manifest.json"}.items():
        (tmp_path / "runs" / name).symlink_to(target)
    assert kinds(tmp_path / "runs") == {"a.sqlite": "report"}


def test_the_newest_come_first_and_the_others_are_counted(tmp_path: Path) -> None:
    for second in range(5):
        made(tmp_path, f"{second}.sqlite", at=second)
    answer = list_reports(Folder(tmp_path), 2)
    assert [each.path for each in answer.data.found] == ["4.sqlite", "3.sqlite"]
    assert answer.data.total == 5
    assert "3 older ones" in answer.text


SMALL = frame(
    "gaps",
    {"gap": 0, "duration_ns": 5, "cause": "sync", "source": "train.py:1 in f"},
    {"gap": 1, "duration_ns": 9, "cause": "host", "source": None},
    {"gap": 2, "duration_ns": 7, "cause": "sync", "source": "other.py:2 in g"},
    {"gap": 3, "duration_ns": 9, "cause": "launch", "source": "train.py:3 in (h.*)"},
)


def ids(query: Query) -> list[int]:
    """The gaps that are found, by number, in their order."""
    found = page_of(SMALL, query).data
    return [row[found.columns.index("gap")] for row in found.rows]


def of_gaps(**wanted: Any) -> Query:
    return Query(name="gaps", columns=("gap", "duration_ns"), **wanted)


def where(column: str, op: Op, value: Any) -> Query:
    condition = Condition(column=column, op=op, value=value)
    return of_gaps(where=(condition,), sort="gap", descending=False)


@pytest.mark.parametrize(
    ("query", "order"),
    [
        (of_gaps(), [1, 3, 2, 0]),  # the largest first, as people read the table
        (of_gaps(sort="gap"), [3, 2, 1, 0]),
        (of_gaps(sort="gap", descending=False), [0, 1, 2, 3]),
        # what was not measured comes last either way
        (of_gaps(sort="source"), [3, 0, 2, 1]),
        (of_gaps(sort="source", descending=False), [2, 0, 3, 1]),
    ],
)
def test_a_column_sorts_either_way(query: Query, order: list[int]) -> None:
    assert ids(query) == order


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (("cause", "=", "sync"), [0, 2]),
        (("cause", "!=", "sync"), [1, 3]),
        (("duration_ns", ">", 7), [1, 3]),
        (("duration_ns", ">=", 7), [1, 2, 3]),
        (("duration_ns", "<", 7.5), [0, 2]),
        (("duration_ns", "<=", 5), [0]),
        (("source", "contains", "train.py"), [0, 3]),
        (("source", "contains", "(h.*)"), [3]),
        (("source", "=", None), [1]),
        (("source", "!=", None), [0, 2, 3]),
    ],
)
def test_a_condition_leaves_the_rows_that_fulfil_it(
    condition: tuple[str, Op, object], left: list[int]
) -> None:
    assert ids(where(*condition)) == left


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (("duration_ns", "=", "long"), "Give a number for duration_ns"),
        (("duration_ns", ">", True), "Give a number for duration_ns"),
        (("duration_ns", "contains", 5), "Compare numbers with ="),
        (("cause", "=", 3), "Give a text, or null, for cause"),
        (("source", "<", None), "Give a text, or null, for source"),
    ],
)
def test_what_cannot_be_compared_is_refused(condition: tuple[str, Op, object], said: str) -> None:
    with pytest.raises(SelectionError) as refused:
        ids(where(*condition))
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (Query(name="gapz"), "Did you mean gaps?"),
        (Query(name="gaps", columns=("duration",)), "Did you mean duration_ns?"),
        (Query(name="gaps", sort="caus"), "Did you mean cause?"),
        (where("sourc", "=", "x"), "Did you mean source?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(query: Query, said: str) -> None:
    with pytest.raises(UnknownName) as refused:
        require_known(query)
    assert said in str(refused.value)


def test_pages_hold_every_row_once_and_say_where_the_next_one_begins() -> None:
    first, rest = page_of(SMALL, of_gaps(limit=3)), page_of(SMALL, of_gaps(limit=3, offset=3))
    assert (first.data.next_offset, rest.data.next_offset) == (3, None)
    assert (*first.data.rows, *rest.data.rows) == page_of(SMALL, of_gaps()).data.rows
    assert "rows 1 to 3 of 4; more from offset 3" in first.text
    assert "rows 4 to 4 of 4\n" in rest.text + "\n"
