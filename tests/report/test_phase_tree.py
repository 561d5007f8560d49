from nsysflow.report.phase_tree import phase_names, phase_tree
from tests.analyses import few_reports, run_of
from tests.report.handmade import MS, Results, device, results, training


@few_reports
def test_the_causes_of_a_phase_sum_to_its_idle_time(name: str) -> None:
    found, _ = phase_tree(run_of(name).judged, 100)
    assert [sum(phase.causes_ns.values()) for phase in found] == [each.idle_ns for each in found]


def test_a_short_tree_keeps_the_longest_phases_and_those_around_them() -> None:
    found, left_out = phase_tree(Results([training()]), 2)
    assert [phase.names for phase in found[:2]] == [("step",), ("step", "forward")]
    assert left_out == 1


def test_a_name_with_a_slash_stays_one_name_and_nests_as_deep_as_it_likes() -> None:
    keys = [("a", 1), ("a/b", 1), ("a/b/c", 2), ("a/b/c/d", 3)]
    assert phase_names(keys) == [("a",), ("a/b",), ("a/b", "c"), ("a/b", "c", "d")]
    depth = 1500  # of a range that is never popped
    keys = [("/".join(["step"] * level), level) for level in range(1, depth + 1)]
    assert phase_names(keys)[-1] == ("step",) * depth


def test_idle_time_before_work_without_a_launch_is_apart() -> None:
    found, _ = phase_tree(results(accounting=[device(9 * MS, host_ns=2 * MS, unknown_ns=MS)]), 10)
    assert [(phase.names, phase.idle_ns // MS) for phase in found] == [
        (("(outside ranges)",), 2),
        (("(not recorded)",), 1),
    ]


def test_phases_busy_at_the_same_time_leave_no_negative_rest() -> None:
    rows = [{"path": path, "depth": 1, "busy_ns": 80 * MS, "process": 7} for path in ("a", "b")]
    found, _ = phase_tree(results(accounting=[device(100 * MS)], phases=rows), 10)
    assert [phase.names[0] for phase in found] == ["a", "b"]  # nothing is outside the ranges
