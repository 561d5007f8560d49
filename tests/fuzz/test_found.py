"""What mutated inputs broke once, made small."""

from pathlib import Path

from tests.cli.running import run
from tests.exports import write_export
from tests.tiny import analysis_of, kernel, launch


def test_work_of_no_length_has_no_idle_time_to_explain() -> None:
    analysis = analysis_of(launch(0, 5, 1), kernel(10, 10, 1))
    assert analysis.accounting["window_ns"].to_list() == [0]
    assert "idle-gpu" not in [each.finding.rule for each in analysis.found.valued]


def test_the_name_of_a_gpu_does_not_control_the_terminal(tmp_path: Path) -> None:
    gpu = {"name": "H200\x1b[2J"}
    report = write_export(tmp_path / "r.sqlite", kernels=[{}], calls=[{}], gpus=[gpu])
    said = run("analyze", report, "--no-files").output
    assert "H200·[2J" in said
    assert "\x1b" not in said
