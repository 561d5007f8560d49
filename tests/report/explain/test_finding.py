"""How a saving was reckoned, in words."""

import subprocess
from dataclasses import replace

import pytest

from nsysflow.analysis.findings.finding import Finding
from nsysflow.analysis.replay.changes import Changes, Removal
from nsysflow.report.explain.finding import command_lines, reckoned


def finding(changes: Changes | None, *, exact: bool = True) -> Finding:
    return Finding(
        rule="sync-in-loop",
        title="a wait",
        change=("remove it",),
        evidence=("it waits",),
        table="syncs",
        size_ns=1,
        steps=1,
        changes=changes,
        exact=exact,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (Changes(removed=(Removal(kind="sync", at="step"),)), "without this wait"),
        (Changes(removed_calls=((1, 2, 3),)), "without this wait"),
        (Changes(removed=(Removal(kind="alloc"),)), "without allocating and freeing"),
        (Changes(async_copies=True), "with copies that do not block the host"),
        (Changes(graphs=("step",)), "with the phase step launched as one CUDA graph"),
        (Changes(scaled=(("gemm", 0.5),)), "with the kernel gemm at 50 % of the time"),
        (Changes(scaled=(("a", 0.0), ("b", 0.0))), "with 2 kernels taking no time"),
        (
            Changes(scaled=(("a", 0.3), ("b", 0.7), ("c", 0.5))),
            "with 3 kernels at 30 % to 70 % of the time",
        ),
        (Changes(faster_host=(("data", 0.0),)), "with the host's code in data taking no time"),
        (Changes(no_profiler=True), "without the profiler's own work"),
        (
            Changes(removed=(Removal(kind="sync"), Removal(kind="copy"))),
            "without this wait and with copies that do not block the host",
        ),
    ],
)
def test_a_replay_says_what_is_different_in_it(changes: Changes, said: str) -> None:
    assert reckoned(finding(changes)) == f"replayed: the recorded steps {said}"


def test_a_replay_of_another_change_is_the_most_that_can_be_saved() -> None:
    said = reckoned(finding(Changes(no_profiler=True), exact=False))
    assert said.startswith("at most: the recorded steps replayed without the profiler's own work")


def test_without_a_replay_it_is_the_most_that_can_be_saved_if_that_is_known() -> None:
    one = finding(None)
    assert reckoned(replace(one, at_most_ns=5)).startswith("at most: the time lost there")
    assert reckoned(one) == "no replay can express the change"


def test_a_kernel_of_a_long_name_is_shortened() -> None:
    name = f"void f<{'int, ' * 40}int>()"
    assert len(reckoned(finding(Changes(scaled=((name, 0.5),))))) < 120


def test_a_short_command_is_one_line() -> None:
    (line,) = command_lines(["nsysflow", "whatif", "my report"], ["--remove", "sync@a.py:1"])
    assert line == "nsysflow whatif 'my report' --remove sync@a.py:1"


def test_a_long_command_has_a_line_for_each_option_and_is_the_same_to_a_shell() -> None:
    options = ["--async-copies", "--scale", "void f<int>()=0.5", "--graph", "a" * 100]
    lines = [*command_lines(["nsysflow", "whatif", "r"], options)]
    assert lines[1:3] == ["    --async-copies \\", "    --scale 'void f<int>()=0.5' \\"]
    typed = "\n".join(["printf '%s\\n' \\", *lines])
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["nsysflow", "whatif", "r", *options]
