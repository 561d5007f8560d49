"""summary.md."""

from nsysflow.report.markdown import summary
from tests.report.handmade import MS, Results, device, results, training, valued, with_findings

NO_BREAK = "\N{NO-BREAK SPACE}"


def head(page: str) -> list[str]:
    """What is above the fold, without empty lines."""
    return [line.strip() for line in page.partition("<details>")[0].splitlines() if line.strip()]


def test_what_matters_is_above_the_fold_in_a_few_lines() -> None:
    assert head(summary(with_findings(valued(title="sync in step/loss")))) == [
        "# run.sqlite",
        "**compute-bound (49 %, mostly matmul); largest loss: host and launch, 42 %**",
        "NVIDIA H200 · by hand",
        "step 50.0 ms, mean of 2",
        "First: save 5.00 ms (10 %): sync in step/loss",
    ]


def test_all_else_is_folded_under_the_names_of_its_parts() -> None:
    page = summary(with_findings(valued()))
    fold = page[page.index("<details>") :]
    assert fold.startswith("<details>\n<summary>Findings, GPU time, Kernels, Idle time, Phases, ")
    assert page.endswith("\n</details>\n")
    assert page.count("## ") == fold.count("## ") == fold.split("</summary>")[0].count(", ") + 1


def test_findings_are_a_table_with_every_one_of_them() -> None:
    page = summary(with_findings(*[valued(steps=1)] * 5, valued(0, changes=None)))
    assert "Savings are per step; unprofiled time unknown: add --capture." in page
    assert "| 5 | 5.00 ms (10 %) | sync in the loop | remove the wait | in 1 of 2 steps |" in page
    assert "| 6 | not estimated | sync in the loop | remove the wait |" in page
    assert "in full: nsysflow explain 1 run.sqlite" in page


def test_every_table_has_as_many_cells_in_each_row() -> None:
    table: list[str] = []
    for line in [*summary(with_findings(valued())).splitlines(), ""]:
        if line.startswith("|"):
            table.append(line)
        elif table:
            assert len({row.count("|") for row in table}) == 1, table
            table = []


def test_a_name_cannot_become_markup() -> None:
    row = {"path": "<b>a|b\n*c*</b> _d_ e_f", "depth": 1, "busy_ns": MS}
    page = summary(results(accounting=[device(MS)], phases=[row]))
    assert r"| \<b\>a\|b·\*c\*\</b\> \_d\_ e_f |" in page


def test_a_finding_cannot_become_markup() -> None:
    page = summary(with_findings(valued(title="</details> | *x*", change=("`if` <b>",))))
    assert r"First: save 5.00 ms (10 %): \</details\> \| \*x\*" in page
    assert r"| \</details\> \| \*x\* | \`if\` \<b\> |" in page


def test_kernels_steps_and_copies_are_in_it() -> None:
    page = summary(Results([training()]))
    for part in ("## Steps", "## Kernels", "## Copies", "| gemm |", "pageable"):
        assert part in page


def test_without_gpu_work_it_says_so_and_ends() -> None:
    page = summary(results())
    assert page.startswith("# run.sqlite\n\n**no GPU work")
    assert "##" not in page
    assert "<details>" not in page


def test_a_nested_phase_keeps_its_indent() -> None:
    page = summary(Results([training()]))
    assert "| step | 70.0 ms |" in page
    assert f"| {4 * NO_BREAK}forward | 52.0 ms |" in page


def test_bars_are_left_to_the_terminal() -> None:
    page = summary(Results([training()]))
    assert "| GPU | window | compute | comm | copy | idle |" in page
    assert "by class: matmul 100 %" in page
    assert not {*"█▓▒░▚"} & {*page}


def test_what_is_left_out_of_a_table_is_counted_below_it() -> None:
    page = summary(Results([training()]), top=1)
    assert "|\n\n1 more: --table syncs\n" in page


def test_a_note_is_a_bullet_at_the_end() -> None:
    page = summary(Results([training()]))
    assert page.endswith("\n- 12 ranges of NCCL are not phases\n\n</details>\n")
