"""The plan: each finding valued, in the order in which to act (spec §16.3 to §16.6)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from nsysflow.analysis.findings.explanation import explanation_of
from nsysflow.analysis.findings.finding import Ends, Finding, Valued, share_pct
from nsysflow.analysis.findings.frameworks import advised
from nsysflow.analysis.findings.judged_report import JudgedReport
from nsysflow.analysis.findings.loaders import with_workers, without_same_loader
from nsysflow.analysis.findings.rules import (
    LAST_RESORT,
    LAST_RESORT_OF_IDLE,
    LAST_RESORT_OF_OWN,
    WITHOUT_TIME,
)
from nsysflow.analysis.findings.rules.costly_line import (
    GOOD_PART,
    with_costly_line_early,
    without_told_lines,
)
from nsysflow.analysis.findings.rules.growing_work import (
    with_growing_first,
    without_told_code,
)
from nsysflow.analysis.findings.saving import Replays
from nsysflow.analysis.findings.stall_findings import (
    TAKES_TURNS,
    bounded,
    compared_with_replay,
    unnamed_ns,
)
from nsysflow.analysis.frames.parallel import side_by_side
from nsysflow.analysis.replay.changes import Changes
from nsysflow.base.units import duration

WORTH_PCT: Final = 1.0
"""A finding that cannot save this share of a step is not worth a line: equal steps of one capture
differ by as much."""

MOST_REPLAYED: Final = 16
"""The largest findings are replayed; those behind them lose less than each of these."""

MOST_BEHIND: Final = 4
"""So many findings that only count once the host keeps up: each takes another replay."""


def plan_of(replays: Replays, asked: Iterable[Finding]) -> tuple[Valued, ...]:
    """Of what rules found in a report, or in all ranks of a run, what is worth a line, in order.

    What may be worth a line is valued by a replay of the judged steps, first alone, then after the
    changes above it. What saves less than `WORTH_PCT` of a step is left out. A report that is
    GPU-bound never ends without a word on its kernels: the last resort says what helps, not what it
    saves.
    """
    subject = replays.subject
    worth_ns = max(1.0, WORTH_PCT / 100 * replays.step_ns)  # nothing is not worth a line
    asked = [one for one in asked if one.size_ns >= worth_ns]
    large = sorted((one for one in asked if not one.by_recording), key=lambda one: -one.size_ns)
    doubtful = ranked(value(one, replays) for one in asked if one.by_recording)
    kept = side_by_side(
        partial(value, one, replays, replayed=index < replays.most)
        for index, one in enumerate(large[:MOST_REPLAYED])
    )
    told = without_told_code(without_told_lines([*_without_hidden(kept)]))
    worthy = [one for one in told if one.alone_ns >= max(worth_ns, one.finding.worth_ns)]
    plan = _planned(worthy, replays, worth_ns)
    hidden = [one for one in kept if one.finding.shortens_compute and one.alone_ns < worth_ns]
    behind: tuple[Valued, ...] = ()
    if any(one.finding.rule == "launch-bound" for one in plan):
        plan = _with_hidden(plan, hidden, replays, worth_ns)
    else:
        behind = ranked(_behind_the_host(hidden, replays, subject))
    plan = _with_idle(plan, replays)
    if last_ones := [one for one in doubtful if one.alone_ns >= worth_ns]:
        plan = tuple(_in_turn([*plan, *last_ones], replays))
    plan = tuple(without_same_loader(plan, worth_ns))
    plan = with_workers([*_with_waits(plan)], subject)
    plan = tuple(_with_words(_with_ends(plan, replays)))
    behind += tuple(value(one, replays) for rule in WITHOUT_TIME for one in rule(subject))
    last = plan[-1].step_after_ns if plan else replays.step_ns
    if not any(one.finding.makes_kernels_faster for one in (*plan, *behind)):
        behind += tuple(value(one, replays) for one in LAST_RESORT(subject))
    named = {*_kernels_of(one.finding for one in (*plan, *behind))}
    behind += tuple(value(one, replays) for one in LAST_RESORT_OF_OWN(subject, named))
    return (*plan, *(replace(one, step_after_ns=last) for one in behind))


def _kernels_of(found: Iterable[Finding]) -> Iterator[str]:
    """The names of the kernels that findings are about."""
    for one in found:
        yield one.culprit
        yield from (name for name, _ in one.changes.scaled) if one.changes else ()


_LATE: Final = ("data-loading", "host-code", "launch-bound")
"""Findings of what the host does in a phase as a whole. Others name a part of it. They take their
places in this order, as a graph comes behind most others."""

BEFORE_GRAPHS: Final = (
    "sync-in-loop",
    "scalar-readback",
    "anomaly-detection",
    "pageable-copy",
    "blocking-pinned-copy",
    "offloaded-activations",
    "checkpoint-in-loop",
    "allocator-retry",
    "allocator-churn",
    "memory-growth",
    "pinned-allocation",
    "host-round-trip",
    "expert-loop",
)
"""A CUDA graph contains no wait and no allocation: these changes come before one …"""

WORTH_FIRST_PCT: Final = 5
"""… if they save so much of the step, or more than a replay knows. Of others the finding of the
graph says that they go first: copies of 1.4 % stood before a graph of 45 % (pytorch-cifar)."""

FEWER_LAUNCHES: Final = (
    *("loop-of-launches", "optimizer-not-fused", "small-copies", "weight-norm"),
    *("backward-per-loss", "costly-line", "attention-in-turn"),
    *("never-compiled", "small-micro-batches"),
)
"""With these changes the step launches less. They come before a CUDA graph, too, if they save at
least `GOOD_PART` of what it saves."""

COMPILED: Final = re.compile(r"(?:^|/)(?:forward|backward)(?:/|$)")
"""Phases of a model. torch.compile takes the loops in them, and leaves other code as it is."""

LOOP_PCT: Final = 10
"""A loop elsewhere that has this share of the step comes before a graph, too, which would not hold
it: two programs took 11 and 12 % less time without their loops for moving averages."""


def _planned(valued: Iterable[Valued], replays: Replays, worth_ns: float) -> tuple[Valued, ...]:
    """The findings in the order in which to act, each with what it saves after those above it."""
    ordered = _in_order(ranked(valued), replays.step_ns)
    plan = _in_turn(with_growing_first(ordered, replays.subject), replays)
    return _with_nothing_last(plan, replays, worth_ns)


def _with_nothing_last(
    plan: Sequence[Valued], replays: Replays, worth_ns: float, *, stays: str = ""
) -> tuple[Valued, ...]:
    """The plan; what saves nothing after those above it comes last, but for the rule that stays."""
    late = [one for one in plan if one.high_ns < worth_ns and one.finding.rule != stays]
    if [*plan[len(plan) - len(late) :]] == late:
        return tuple(plan)
    left = [one for one in plan if one.high_ns >= worth_ns or one.finding.rule == stays]
    return tuple(_in_turn([*left, *late], replays))


def _with_hidden(
    plan: Sequence[Valued], hidden: Sequence[Valued], replays: Replays, worth_ns: float
) -> tuple[Valued, ...]:
    """The plan with the faster kernels behind it that save something once the host keeps up."""
    both = _in_turn([*plan, *ranked(hidden[:MOST_BEHIND])], replays)
    kept = [one for at, one in enumerate(both) if at < len(plan) or one.high_ns >= worth_ns]
    kept = kept if len(kept) == len(both) else _in_turn(kept, replays)
    # without the launches, the kernels behind them save nothing
    return _with_nothing_last(kept, replays, worth_ns, stays="launch-bound")


def _in_order(ranked: Iterable[Valued], step_ns: float) -> list[Valued]:
    """The findings by their worth; those of the host's launches and code behind what comes before
    them in any case, those of all kernels behind a line that is worth a good part of them."""
    found = with_costly_line_early([*ranked])
    plan = [one for one in found if one.finding.rule not in _LATE]
    late = [one for rule in _LATE for one in found if one.finding.rule == rule]
    for one in late:
        firsts = [at for at, other in enumerate(plan) if _comes_before(other, one, step_ns)]
        by_worth = sum(one.worth <= other.worth for other in plan)
        plan.insert(max(by_worth, 1 + max(firsts, default=-1)), one)
    return plan


def _comes_before(other: Valued, late: Valued, step_ns: float) -> bool:
    """Whether a finding comes before a CUDA graph or host code, even if that is worth more. While
    another thread holds the lock, what the host takes is not what its own code takes."""
    rule, enough = other.finding.rule, other.alone_ns >= GOOD_PART * late.alone_ns
    if rule == "gil-contention" and late.finding.rule != "data-loading":
        return not other.finding.at_most_ns  # an estimate comes before nothing that saves more
    if late.finding.rule != "launch-bound":
        same = other.finding.phase == late.finding.phase
        return rule == "small-copies" and same and enough
    if rule in FEWER_LAUNCHES and enough:
        return True
    if rule == "loop-of-launches" and not COMPILED.search(other.finding.phase):
        return 100 * other.alone_ns >= LOOP_PCT * step_ns
    worth_it = other.finding.saves_more or 100 * other.alone_ns >= WORTH_FIRST_PCT * step_ns
    return rule in BEFORE_GRAPHS and worth_it


def _in_turn(plan: Iterable[Valued], replays: Replays) -> list[Valued]:
    """Each finding with what it saves once those before it are changed, and the step then."""
    made: list[Changes] = []
    replayed_ns, saved_ns, busy_ns, floor_ns = 0, 0, replays.step_ns, 0
    done = []
    plan = [*plan]
    _replay_all(plan, replays)
    for one in plan:
        floor_ns = max(floor_ns, one.finding.floor_ns)
        changes, low_ns = one.finding.changes, None
        if changes is not None:
            if one.finding.sure is not None:
                low_ns = _saved(replays, [*made, one.finding.sure]) - replayed_ns
            made.append(changes)
            with_it_ns = max(replayed_ns, replays.saving_ns(Changes.together(made)) or 0)
            high_ns = with_it_ns - replayed_ns
            if one.finding.is_bound_of_kernels and 100 * high_ns >= WORTH_PCT * one.step_ns:
                most_ns = replays.most_saved_ns(changes, Changes.together(made[:-1])) or 0
                high_ns = max(high_ns, most_ns)
            high_ns = _at_most(one.finding, high_ns)
            replayed_ns = with_it_ns
        else:
            high_ns = one.alone_ns
        # what moves into the step from elsewhere is no work of its own
        busy_ns = min(busy_ns, replays.busy_ns(Changes.together(made)))
        # what is not replayed may be the GPU's own time
        of_host = one.counts or leaves_work(one.finding)
        kept_ns = busy_ns if of_host else 0
        left_ns = one.step_ns - saved_ns - (max(kept_ns, floor_ns) if floor_ns else kept_ns)
        high_ns = max(0, min(high_ns, left_ns))
        saved_ns += high_ns if one.counts else 0
        done.append(
            replace(
                one,
                low_ns=least_ns(one.finding, low_ns, high_ns),
                high_ns=high_ns,
                step_after_ns=one.step_ns - saved_ns,
                busy_after_ns=busy_ns,
            )
        )
    return done


def _replay_all(plan: Iterable[Valued], replays: Replays) -> None:
    """Replay the changes of a plan one after the other, several at a time: `replays` knows them
    then."""
    changes = [one.finding.changes for one in plan if one.finding.changes is not None]
    together = (Changes.together(changes[:count]) for count in range(1, 1 + len(changes)))
    side_by_side(partial(replays.saving_ns, each) for each in together)


def _at_most(finding: Finding, saved_ns: int) -> int:
    """The high end of a saving: where more is replayed than people would do, at most its size."""
    exact = finding.exact and finding.sure is None
    return saved_ns if exact or not finding.at_most_ns else min(saved_ns, finding.at_most_ns)


def least_ns(finding: Finding, sure_ns: int | None, high_ns: int) -> int:
    """The low end of a saving.

    Args:
        finding: what is changed.
        sure_ns: what the changes save that are sure; None where all are.
        high_ns: the high end.
    """
    if finding.method == "bound":
        return 0
    return high_ns if sure_ns is None else max(0, min(sure_ns, high_ns))


def _with_waits(plan: Sequence[Valued]) -> Iterator[Valued]:
    """The plan; a graph says which waits and allocations below it go first."""
    for at, one in enumerate(plan):
        behind = [each.finding for each in plan[at + 1 :] if each.finding.rule in BEFORE_GRAPHS]
        if one.finding.rule != "launch-bound" or not behind:
            yield one
            continue
        places = dict.fromkeys(each.source or each.phase or each.culprit for each in behind)
        first = f"first remove the waits at {', '.join(places)}: a CUDA graph cannot contain them"
        best, *others = one.finding.change
        yield replace(one, finding=replace(one.finding, change=(best, first, *others)))


def _with_words(plan: Iterable[Valued]) -> Iterator[Valued]:
    """The plan with what both ends of a range mean."""
    for one in plan:
        if not one.is_range or one.finding.ends is None:
            yield one
            continue
        least, most = one.finding.ends
        low = duration(one.said.low_ns) if one.said.low_ns else "nothing"
        ends = f"{low} if {least}, {duration(one.said.high_ns)} if {most}"
        finding = replace(one.finding, evidence=(*one.finding.evidence, ends))
        yield replace(one, finding=finding)


def _with_ends(plan: Sequence[Valued], replays: Replays) -> tuple[Valued, ...]:
    """The plan with the least and the most that each finding may save, if the plain step is known
    only roughly."""
    estimate = replays.plain_estimate
    if estimate is None or not estimate.is_wide or 2 * len(plan) > replays.most:
        return tuple(plan)
    middle = [(one.low_ns, one.high_ns, one.step_ns) for one in plan]
    others = side_by_side(partial(_all_at_cost, plan, replays, at) for at in replays.extremes)
    return tuple(
        replace(
            one,
            plain=Ends(
                low_ns=min(low_ns for low_ns, _, _ in each),
                high_ns=max(high_ns for _, high_ns, _ in each),
                low_pct=min(share_pct(low_ns, step_ns) for low_ns, _, step_ns in each),
                high_pct=max(share_pct(high_ns, step_ns) for _, high_ns, step_ns in each),
            ),
        )
        for one, *each in zip(plan, middle, *others, strict=True)
    )


def _all_at_cost(
    plan: Sequence[Valued], replays: Replays, at: Replays
) -> list[tuple[int, int, int]]:
    """What each finding of a plan saves after those above it where recording costs so much: at
    least, at most, and of which step."""
    made: list[Changes] = []
    floor_ns = 0
    done = []
    for one in plan:
        floor_ns = max(floor_ns, one.finding.floor_ns)
        low_ns, high_ns = _at_cost(one, made, replays, at)
        if floor_ns:
            left_ns = max(0, at.step_ns - _saved(at, made) - floor_ns)
            low_ns, high_ns = min(low_ns, left_ns), min(high_ns, left_ns)
        made += [] if one.finding.changes is None else [one.finding.changes]
        done.append((low_ns, high_ns, at.step_ns))
    return done


def _at_cost(
    one: Valued, made: Sequence[Changes], replays: Replays, at: Replays
) -> tuple[int, int]:
    """What a finding saves after other changes where recording costs so much: at least, at most.

    Args:
        one: the finding, valued by `replays`.
        made: the changes above it.
        replays: where recording costs the middle of what is usual.
        at: where it costs something else.
    """
    finding = one.finding
    if finding.changes is None:
        scaled = _is_idle_time(finding) and replays.idle_left
        factor = at.idle_left / replays.idle_left if scaled else 1.0
        high_ns = round(factor * one.high_ns)
        return least_ns(finding, None, high_ns), high_ns
    before_ns = _saved(at, made)
    high_ns = _at_most(finding, max(0, _saved(at, [*made, finding.changes]) - before_ns))
    sure = finding.sure
    sure_ns = None if sure is None else max(0, _saved(at, [*made, sure]) - before_ns)
    return least_ns(finding, sure_ns, high_ns), high_ns


def _saved(replays: Replays, made: Sequence[Changes]) -> int:
    return max(0, replays.saving_ns(Changes.together(made)) or 0) if made else 0


def _without_hidden(valued: list[Valued]) -> Iterator[Valued]:
    """The findings without those of all waits at once that say no more than those of each wait."""
    each = [one for one in valued if one.finding.waits and not one.finding.joint]
    alone_ns = sum(one.alone_low_ns for one in each)
    for one in valued:
        more = one.alone_ns > TAKES_TURNS * alone_ns
        if not one.finding.joint or (more and not any(_has_all(other, one) for other in each)):
            yield one


def _has_all(other: Valued, joint: Valued) -> bool:
    """Whether a finding removes all waits of another one: those of neighbouring lines."""
    removed, all_of = (one.finding.changes or Changes() for one in (other, joint))
    return {*all_of.removed} <= {*removed.removed}


def value(finding: Finding, replays: Replays, *, replayed: bool = True) -> Valued:
    """A finding with its saving, replayed if it can be, and if that is worth its time."""
    finding = _of_its_process(advised(finding, replays.subject.frameworks), replays.subject)
    saved_ns, sure_ns, step_ns = None, None, replays.step_ns
    if finding.changes is not None and replayed:
        saved_ns = replays.saving_ns(finding.changes)
        # where the GPU is the limit at first; else the host's launches come before its kernels
        worth = saved_ns is not None and 100 * saved_ns >= WORTH_PCT * step_ns
        if saved_ns is not None and worth and finding.is_bound_of_kernels:
            saved_ns = max(saved_ns, replays.most_saved_ns(finding.changes, Changes()) or 0)
    if saved_ns is not None and finding.sure is not None:
        sure_ns = replays.saving_ns(finding.sure) or 0
        if 100 * (saved_ns - sure_ns) < WORTH_PCT * step_ns:  # not worth a range
            finding = replace(finding, changes=finding.sure, sure=None, ends=None)
            saved_ns, sure_ns = sure_ns, None
    if saved_ns is None:
        # no replay: what is lost there is the most that can be saved
        saved_ns = finding.at_most_ns if finding.changes is None else finding.size_ns
        if _is_idle_time(finding):
            saved_ns = round(replays.idle_left * saved_ns)
        saved_ns = min(saved_ns, step_ns)
        finding = replace(finding, exact=False, changes=None, sure=None, ends=None)
    elif finding.waits:
        lost_ns = replays.idle_left * finding.size_ns
        waits_ns = saved_ns if sure_ns is None else sure_ns
        if not finding.joint:
            finding = compared_with_replay(finding, waits_ns, lost_ns)
        finding = bounded(finding, waits_ns, lost_ns, unnamed_ns(replays.subject))
    if finding.beside and replays.subject.of_steps:
        saved_ns = min(saved_ns, replays.longer_ns)
    if finding.changes is not None or leaves_work(finding):
        saved_ns = min(saved_ns, step_ns - replays.busy_ns(finding.changes or Changes()))
    if finding.floor_ns:
        saved_ns = min(saved_ns, step_ns - finding.floor_ns)
    saved_ns = max(0, saved_ns)
    saved_ns = _at_most(finding, saved_ns)
    low_ns = least_ns(finding, sure_ns, saved_ns)
    return Valued(
        finding=finding,
        low_ns=low_ns,
        high_ns=saved_ns,
        alone_ns=saved_ns,
        alone_low_ns=low_ns,
        step_ns=step_ns,
        step_after_ns=step_ns - saved_ns,
        report=replays.subject.report,
    )


def _is_idle_time(finding: Finding) -> bool:
    """Whether what is lost there is idle time of judged steps."""
    return bool(explanation_of(finding.rule).causes) and not finding.beside


ONLY_IDLE: Final = (
    *("launch-bound", "host-code", "data-loading", "gil-contention", "cpu-wait"),
    *("dependency-wait", "code-loading", "first-allocation", "idle-gpu"),
)
"""What these lose is idle time alone. Others with idle time lose time of the GPU, too, such as
kernels that wait for pages of managed memory."""


def leaves_work(finding: Finding) -> bool:
    """Whether it leaves the GPU its work even if no replay says so."""
    return finding.rule in ONLY_IDLE and not finding.beside


def _of_its_process(finding: Finding, subject: JudgedReport) -> Finding:
    """A finding that says which process it is of, where several use a GPU; in no more steps than
    are judged."""
    steps = finding.steps if finding.beside else min(finding.steps, subject.steps)
    several = subject.timeline.events.users["process"].n_unique() > 1
    if not several or finding.process is None:
        return replace(finding, steps=steps)
    return replace(finding, steps=steps, title=f"{finding.title} (process {finding.process})")


def _behind_the_host(
    hidden: Sequence[Valued], replays: Replays, subject: JudgedReport
) -> Iterator[Valued]:
    """Faster kernels that alone save next to nothing, since the host is the limit: with what they
    save once it keeps up, its launches being one CUDA graph a step. Alone they save what they do,
    so that they come last."""
    worth_ns = WORTH_PCT / 100 * replays.step_ns
    if not hidden or not subject.of_steps:
        return
    no_limit = Changes(graphs=tuple(subject.timeline.step_paths["joined"].unique().sort()))
    without_ns = replays.saving_ns(no_limit)
    for one in hidden[:MOST_BEHIND]:
        changes = one.finding.changes or Changes()
        both_ns = replays.saving_ns(Changes.together([no_limit, changes]))
        if both_ns is None or without_ns is None or both_ns - without_ns < worth_ns:
            continue
        yield replace(one, low_ns=0, high_ns=0, later_ns=both_ns - without_ns)


def _with_idle(plan: Sequence[Valued], replays: Replays) -> tuple[Valued, ...]:
    """The plan with the idle time that its findings do not explain, where that is much."""
    left = replays.idle_left
    if not left:
        return tuple(plan)
    explained_ns = 0
    of_causes: dict[str, int] = {}
    for one in plan:
        causes = explanation_of(one.finding.rule).causes if _is_idle_time(one.finding) else ()
        recorded_ns = round(one.alone_ns / left) if causes else 0
        explained_ns += recorded_ns
        if len(causes) == 1:
            of_causes[causes[0]] = of_causes.get(causes[0], 0) + recorded_ns
    both = [*plan]
    for found in LAST_RESORT_OF_IDLE(replays.subject, explained_ns, of_causes):
        one = value(found, replays)
        both.insert(sum(one.worth <= other.worth for other in plan), one)
    return tuple(plan if len(both) == len(plan) else _in_turn(both, replays))


def together_ns(plan: Sequence[Valued]) -> int | None:
    """What all changes of a plan save. None where fewer than two are counted in its steps."""
    counted = [one for one in plan if one.counts]
    return sum(one.high_ns for one in counted) if len(counted) > 1 else None


def ranked(valued: Iterable[Valued]) -> tuple[Valued, ...]:
    """What saves most for what it takes first; of equal ones by name."""

    def rank(one: Valued) -> tuple[float, int, str, str]:
        return -one.worth, -one.later_ns, one.finding.rule, one.finding.title

    return tuple(sorted(valued, key=rank))
