"""gap-report.csv and gap-report.md."""

from nsysflow.report.gap_report import (
    LAUNCHING,
    WAITING,
    Part,
    Place,
    Track,
    as_csv,
    as_markdown,
    gap_report,
)

MS = 1_000_000


def run(phase: str = "loss", *, steps: int = 20, has_steps: bool = True) -> Track:
    """A GPU that waits for a loss and for launches."""
    forward: dict[Part, list[int]] = {
        ("launch", ""): [MS] * steps,
        ("host", ""): [3 * MS] * steps,
    }
    loss: dict[Part, list[int]] = {
        ("sync", "cudaStreamSynchronize"): [20 * MS + 1000 * at for at in range(steps)]
    }
    return Track(
        gpu="NVIDIA H200",
        has_steps=has_steps,
        step_ns=[100 * MS] * steps,
        idle_ns={Place("forward", LAUNCHING): forward, Place(phase, WAITING, "step (t.py)"): loss},
    )


def test_the_csv_has_a_line_per_place_in_order_and_the_rest_last() -> None:
    assert as_csv(gap_report([run()])).splitlines() == [
        "place,cause,function,step_pct",
        "forward,launching,,5",
        "loss,waiting,step (t.py),20",
        "(all smaller ones),,,1",
    ]


def test_a_name_with_a_comma_stays_one_cell() -> None:
    assert '"a, b",waiting,' in as_csv(gap_report([run("a, b")]))


def test_the_markdown_says_first_how_long_a_step_is_and_how_much_of_it_is_idle() -> None:
    first = as_markdown(gap_report([run()])).splitlines()[0]
    assert first == "# NVIDIA H200: idle 24 % of a step of 100 ms"


def test_the_markdown_gives_time_interval_and_share_of_each_row() -> None:
    page = as_markdown(gap_report([run()]))
    row = (
        "| forward | launching: host code 75 %, launch overhead 25 % | 4.00 ms | 4.00 ms to 4.00 ms"
    )
    assert f"{row} | 4.0 % | 5 % |" in page
    assert "| loss, step (t.py) | waiting: cudaStreamSynchronize 100 % | 20.0 ms |" in page


def test_a_name_cannot_break_the_table() -> None:
    page = as_markdown(gap_report([run("a|b\n# c")]))
    assert r"| a\|b·# c, step (t.py) |" in page


def test_without_steps_the_markdown_speaks_of_the_window_and_gives_no_interval() -> None:
    page = as_markdown(gap_report([run(steps=1, has_steps=False)]))
    assert page.startswith("# NVIDIA H200: idle 24 % of a window of 100 ms\n\nNo steps are known")
    assert "| 4.00 ms |  | 4.0 % | 5 % |" in page
    assert "a step" not in page.split("To compare")[0]


def test_the_markdown_says_what_a_row_of_several_ranks_is() -> None:
    page = as_markdown(gap_report([run(), run()]))
    assert "Of 2 ranks, each row has the one where it is the largest share." in page


def test_a_report_without_gpu_work_has_files_too() -> None:
    empty = gap_report([])
    assert as_csv(empty).splitlines() == ["place,cause,function,step_pct"]
    assert as_markdown(empty) == "# No GPU work was recorded\n"
