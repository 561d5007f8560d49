"""What to change next, once something is changed."""

from nsysflow.analysis.findings.after import largest_after
from nsysflow.analysis.replay.changes import Changes, Removal
from tests.analyses import analysed


def test_faster_kernels_save_once_the_step_of_gpt2_is_a_graph() -> None:
    of = analysed("h200-gpt2-eager")
    then = largest_after(of.subject, of.found, Changes(graphs=("train_step",)))
    assert then is not None
    assert then.finding.rule == "unfused-elementwise"
    assert then.high_ns > 5_000_000


def test_nothing_is_left_of_a_wait_that_is_removed() -> None:
    of = analysed("nan_check-sync")
    gone = Changes(removed=(Removal(kind="sync", at="nan_check.py:125"),))
    then = largest_after(of.subject, of.found, gone)
    assert then is None or then.finding.rule != "sync-in-loop"


def test_without_a_change_the_first_finding_is_the_largest() -> None:
    of = analysed("nan_check-sync")
    then = largest_after(of.subject, of.found, Changes())
    assert then is not None
    assert (then.finding, then.high_ns) == (of.found.valued[0].finding, of.found.valued[0].high_ns)
