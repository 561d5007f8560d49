"""summary.md."""

from nsysflow.report.markdown import summary
from tests.report.handmade import MS, Results, device, results, training

NO_BREAK = "\N{NO-BREAK SPACE}"


def test_the_verdict_comes_first() -> None:
    lines = summary(Results([training()])).splitlines()
    assert lines[0] == "# run.sqlite"
    assert lines[2].startswith("**host-bound (50 % idle); largest loss: host code")


def test_every_table_has_as_many_cells_in_each_row() -> None:
    table: list[str] = []
    for line in [*summary(Results([training()])).splitlines(), ""]:
        if line.startswith("|"):
            table.append(line)
        elif table:
            assert len({row.count("|") for row in table}) == 1, table
            table = []


def test_a_name_cannot_become_markup() -> None:
    row = {"path": "<b>a|b\n*c*</b> _d_ e_f", "depth": 1, "busy_ns": MS}
    page = summary(results(accounting=[device(MS)], phases=[row]))
    assert r"| \<b\>a\|b·\*c\*\</b\> \_d\_ e_f |" in page


def test_kernels_steps_and_copies_are_in_it() -> None:
    page = summary(Results([training()]))
    for part in ("## Steps", "## Kernels", "## Copies", "| gemm |", "pageable"):
        assert part in page


def test_without_gpu_work_it_says_so_and_ends() -> None:
    page = summary(results())
    assert page.startswith("# run.sqlite\n\n**no GPU work")
    assert "##" not in page


def test_a_nested_phase_keeps_its_indent() -> None:
    page = summary(Results([training()]))
    assert "| step | 2 |" in page
    assert f"| {4 * NO_BREAK}forward | 2 |" in page


def test_bars_are_left_to_the_terminal() -> None:
    page = summary(Results([training()]))
    assert "| GPU | window | compute | comm | copy | idle |" in page
    assert not {*"█▓▒░"} & {*page}


def test_a_note_is_a_bullet_at_the_end() -> None:
    assert summary(Results([training()])).endswith("\n- 12 ranges of NCCL are not phases\n")
