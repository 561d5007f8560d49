"""The ranks of a run, from the digests of its reports."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import nsysflow
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import Digest, digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.schema import STEP_KIND
from nsysflow.report.results import Results
from tests.analyses import EXAMPLES, analysed, loaded
from tests.oracle import rank_tables as oracle
from tests.oracle.comm import exchanged
from tests.oracle.rank_bandwidth import bandwidth
from tests.oracle.ranks import Collective, RankKey, Run, matched
from tests.oracle.report import Report, Row
from tests.runs_of_ranks import NAMES, digests_of, kernels_in, ranks_of, spans_of

MEETINGS = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from((None, None, None, 1, 2)),
    st.sampled_from((7, 7, 7, 9)),
    st.booleans(),
)
"""A collective: its name, communicator and stream, and whether each group has its own."""

STEP_KINDS = st.tuples(st.booleans(), st.sampled_from(("steady", "start-up", "one-off")))
"""Whether a step is judged, and its kind."""

SOME = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
MANY = settings(SOME, max_examples=3 * EXAMPLES)
"""Many examples: in most random layouts nothing matches, or everything does."""


def oracle_steps(steps: pl.DataFrame) -> oracle.Steps:
    rows = steps.select("rank", "step", "start_ns", "duration_ns").rows()
    return {(rank, step): (start_ns, lasts_ns) for rank, step, start_ns, lasts_ns in rows}


def assert_agree(found: Ranks, run: Run, steps: oracle.Steps | None = None) -> None:
    """Each table, column by column as far as the oracle has it; by default, all steps count."""
    steps = oracle_steps(found.matched.steps) if steps is None else steps
    rows: dict[str, Sequence[Row]] = {
        "ranks": oracle.ranks(run),
        "arrivals": oracle.arrivals(run),
        "rank_groups": oracle.rank_groups(run, steps),
        "rank_steps": oracle.rank_steps(run, steps) if len(run.ranks) > 1 else [],
    }
    for name, expected in rows.items():
        table = found.table(name)
        columns = [column for column in table.columns if expected and column in expected[0]]
        assert table.height == len(expected)
        wanted = [{column: row[column] for column in columns} for row in expected]
        assert table.select(columns).to_dicts() == wanted
    of_link = "group", "operation", "size_bytes"
    speeds = {tuple(row[name] for name in of_link): row for row in found.bandwidth.to_dicts()}
    kinds = dict(found.matched.groups.select("group", "kind").rows())
    expected_speeds = bandwidth(run, kinds)
    assert speeds.keys() == expected_speeds.keys()
    for key, row in expected_speeds.items():
        assert {name: speeds[key][name] for name in row} == pytest.approx(row)
    assert found.matched.kernels["exposed_ns"].sum() == sum(run.exposed_ns.values())


@st.composite
def runs(draw: st.DrawFn, groups: int = 2) -> tuple[list[Collective], int]:
    """Up to three reports of one or two ranks each, with their own clocks, all or some selected.

    In one group, all ranks do every collective together. Of two groups, each also has its own
    collectives, of the same names and counts and at its own pace; sometimes a rank has one more.
    The ends of a collective are up to 5 ns apart. With one group it takes at least 40 ns.
    """
    reports = draw(st.integers(1, 3))
    ranks = [(report, gpu) for report in range(reports) for gpu in range(draw(st.integers(1, 2)))]
    of = {rank: draw(st.integers(0, groups - 1)) for rank in ranks}
    parties = [[rank for rank in ranks if of[rank] == each] for each in range(groups)]
    ahead_ns = [draw(st.integers(-500, 500)) for _ in range(reports)]
    pace_ns = [draw(st.integers(0, 40)) for _ in range(groups)]
    lasts_ns = st.integers(40, 80) if groups == 1 else st.sampled_from((0, 3, 40, 80))
    in_window = draw(st.sampled_from((st.just(True), st.sampled_from((True, True, True, False)))))
    at_ns = dict.fromkeys(ranks, 1_000)
    did = dict.fromkeys(ranks, (0, 0, 0))
    kernels = []

    def spend(rank: tuple[int, int], ns: int, *, comm: bool) -> tuple[int, int, int]:
        """Some of the time goes to compute, copies or communication; the rest is idle."""
        part = draw(st.integers(0, ns))
        sort = 2 if comm else draw(st.integers(0, 2))
        compute, copies, other = (did[rank][at] + part * (sort == at) for at in range(3))
        did[rank] = compute, copies, other
        return did[rank]

    def meet(
        members: list[tuple[int, int]], number: int, name: str, communicator: int | None, on: int
    ) -> None:
        starts = [at_ns[rank] + pace_ns[of[rank]] + draw(st.integers(0, 30)) for rank in members]
        last_ns = max(starts, default=0) + draw(lasts_ns)
        for rank, start_ns in zip(members, starts, strict=True):
            before = spend(rank, start_ns - at_ns[rank], comm=False)
            at_ns[rank] = last_ns + draw(st.integers(0, 5))
            times = (start_ns + ahead_ns[rank[0]], at_ns[rank] + ahead_ns[rank[0]])
            kernels.append(
                Collective(
                    *(rank[0], f"rank{rank[0]}", 100 + rank[0], rank[1], on, *times, name),
                    *("ncclAllReduce", draw(st.sampled_from((None, 64))), communicator),
                    in_window=draw(in_window),
                    step=number // 4 or None,
                    before=before,
                    until=spend(rank, at_ns[rank] - start_ns, comm=True),
                    overlapped_ns=draw(st.integers(0, at_ns[rank] - start_ns)),
                )
            )

    meetings = draw(st.lists(MEETINGS, max_size=12))
    for number, (name, communicator, on, apart) in enumerate(meetings):
        for members in parties if apart else [ranks]:
            meet(members, number, name, communicator, on)
    if groups > 1 and draw(st.integers(0, 3)) == 3:
        meet(ranks[-1:], 12, NAMES[0], None, 7)
    return kernels, reports


@MANY
@given(runs())
def test_the_tables_of_any_run_agree_with_the_oracle(run: tuple[list[Collective], int]) -> None:
    assert_agree(ranks_of(*run), matched(*run))


@MANY
@given(runs(), st.data())
def test_what_is_judged_agrees_with_the_oracle_one_offs_included(
    run: tuple[list[Collective], int], data: st.DataObject
) -> None:
    kernels, reports = run
    digests = []
    of_step: dict[tuple[RankKey, int], tuple[bool, str]] = {}
    for number, each in enumerate(digests_of(kernels, reports, spans_of(kernels))):
        keys = each.steps.select("process", "device", "step").rows()
        drawn = data.draw(st.lists(STEP_KINDS, min_size=len(keys), max_size=len(keys)))
        judged = pl.Series("judged", [is_judged for is_judged, _ in drawn], pl.Boolean)
        kinds = pl.Series("kind", [kind for _, kind in drawn], STEP_KIND)
        digests.append(replace(each, steps=each.steps.with_columns(judged, kinds)))
        for (process, device, step), of in zip(keys, drawn, strict=True):
            of_step[(number, True, process, device), step] = of
    found, expected = Ranks.of(digests), matched(oracle.judged(kernels, of_step), reports)
    counted = oracle.counted(of_step)
    every = oracle_steps(found.matched.steps)
    keys = [(rank, step) for rank, step in every if (expected.ranks[rank], step) in counted]
    assert_agree(found.judged, expected, {key: every[key] for key in keys})


@SOME
# an even number, because halves are rounded to even
@given(runs(), st.integers(-(10**9), 10**9).map(lambda half_ns: 2 * half_ns))
def test_shifting_the_clock_of_a_later_report_changes_only_that_clock(
    run: tuple[list[Collective], int], by_ns: int
) -> None:
    kernels, reports = run
    moved = [
        replace(k, start_ns=k.start_ns + by_ns, end_ns=k.end_ns + by_ns) if k.report_no else k
        for k in kernels
    ]
    found, later = ranks_of(kernels, reports), ranks_of(moved, reports)
    assume(found.ranks["clock_ns"].null_count() == 0)  # else some have a first report of their own
    for name in ("arrivals", "rank_groups", "rank_steps", "bandwidth"):
        assert found.table(name).equals(later.table(name))
    assert found.ranks.drop("clock_ns").equals(later.ranks.drop("clock_ns"))


@SOME
@given(runs(groups=1))
def test_every_collective_is_matched_if_all_ranks_take_part(
    run: tuple[list[Collective], int],
) -> None:
    kernels, reports = run
    found = ranks_of([replace(k, in_window=True) for k in kernels], reports)
    if found.ranks.is_empty():
        return
    assert found.arrivals["ranks"].to_list() == [found.ranks.height] * found.arrivals.height
    assert found.arrivals.height * found.ranks.height == len(kernels)


@SOME
@given(runs(groups=1), st.data())
def test_the_order_of_the_reports_changes_only_the_numbers_of_ranks_and_groups(
    run: tuple[list[Collective], int], data: st.DataObject
) -> None:
    digests = digests_of(*run)
    turned = data.draw(st.permutations(digests))

    def groups(of: Sequence[Digest]) -> set[tuple[tuple[str, int], ...]]:
        matched = Ranks.of(of).matched
        rows = matched.ranks.select("rank", "report", "device").iter_rows()
        names = {rank: (report, device) for rank, report, device in rows}
        members = matched.groups["members"]
        return {tuple(sorted(names[rank] for rank in group)) for group in members}

    assert groups(digests) == groups(turned)


def test_a_window_changes_neither_clocks_nor_matches() -> None:
    reports = [loaded(f"h200-ddp-rank{number}") for number in (0, 1)]
    whole = Results([nsysflow.analyze(report) for report in reports])
    # the two clocks are 37 ms apart: the same instants are in different steps
    starts = [analysed(report.report).steps["start_ns"].to_list() for report in reports]
    options = Options(from_ns=starts[1][1], to_ns=starts[0][3])
    part = Results([nsysflow.analyze(report, options) for report in reports])
    assert 0 < len(part.table("arrivals")) < len(whole.table("arrivals"))
    assert set(part.table("arrivals").rows()) < set(whole.table("arrivals").rows())
    assert part.table("ranks")["clock_ns"].equals(whole.table("ranks")["clock_ns"])


def of_real_run(*names: str) -> tuple[Ranks, Run]:
    """A real run, and the same as the oracle takes it."""
    digests = [digest(analysed(name)) for name in names]
    return Ranks.of(digests), matched(kernels_in(digests), len(digests))


@pytest.mark.parametrize(
    "names",
    [
        *(
            [f"{run}-rank{number}" for number in (0, 1)]
            for run in ("h200-ddp", "ddp-bucketed", "ddp-no_overlap")
        ),
        ["ddp-bucketed-rank0"],
    ],
    ids="+".join,
)
def test_the_tables_of_a_real_run_agree_with_the_oracle(names: list[str]) -> None:
    """In that of h200-ddp, rank 1 waits for rank 0, whose profiler started late."""
    assert_agree(*of_real_run(*names))


def assert_exchanged_alike(analysis: nsysflow.Analysis, report: Report) -> None:
    """The exposed times up to each kernel are the oracle's; see test_oracle_agrees.py."""
    found = digest(analysis).collectives
    expected = exchanged(report)
    columns = [*expected[0]] if expected else []
    order = ["device", "start_ns", "end_ns", "stream", "name", "process"]
    rows = found.select(columns).sort(order).to_dicts() if columns else []
    assert found.height == len(expected)
    assert rows == sorted(expected, key=lambda row: tuple(row[name] for name in order))


def test_a_digest_travels_and_stays_small() -> None:
    made = digest(analysed("ddp-bucketed-rank0"))
    sent = pickle.dumps(made)
    assert len(sent) < 20_000 + 300 * made.collectives.height
    there = pickle.loads(sent)
    assert Ranks.of([there, made]).arrivals.equals(Ranks.of([made, there]).arrivals)
    assert not hasattr(there, "trace")
    assert there.steps["judged"].to_list() == [True] * 5
