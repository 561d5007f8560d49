"""A session runs its cases and keeps their rows."""

from dataclasses import replace
from pathlib import Path

import pytest

from nsysflow.kernels.bench import session
from nsysflow.kernels.bench.cases import Bench, Case, blank_row
from nsysflow.kernels.bench.session import Request

REQUEST = Request(
    kernels=("prio",),
    variants=("ref", "triton"),
    dtypes=("bf16", "float"),
    sweep=False,
    csv_file=None,
    json_file=None,
    inject_error=False,
)


def test_an_interrupted_session_has_kept_the_rows_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Case] = []

    def row_of(bench: Bench, case: Case, *, corrupt: bool) -> object:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(case)
        return blank_row(bench, case)

    monkeypatch.setattr(session, "row_of", row_of)
    rows = tmp_path / "rows.csv"
    with pytest.raises(KeyboardInterrupt):
        session.run(replace(REQUEST, csv_file=rows), on_gpu=False)
    assert len(rows.read_text().splitlines()) == 1 + 3
