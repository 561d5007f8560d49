"""What a replay with changes gives, as text and as JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.findings.run_saving import RunWhatIf
from nsysflow.analysis.replay.whatif import OnRanks, WhatIf
from nsysflow.base.units import duration, number, percent, share, significant
from nsysflow.base.units import size as in_bytes
from nsysflow.report.findings import amount_of


def whatif_lines(report: str, whatif: WhatIf, next_finding: Valued | None = None) -> Iterator[str]:
    """The lines that a person reads: step, window, idle time by cause, what to change next, limits.

    Args:
        report: its name.
        whatif: the replay.
        next_finding: the finding that saves most beside the changes; None where none is known.
    """
    before, after = whatif.before, whatif.after
    if whatif.undisturbed:
        known = _known(estimated=whatif.estimated)
        yield f"{report} replayed without the profiler's share: {known}"
    else:
        yield f"{report} replayed; times are as recorded, under the profiler"
    if before.step_ns is not None:
        step = "selected step" if before.selected else "steady step"
        what = f"1 {step}" if before.steps == 1 else f"the mean of {before.steps} {step}s"
        yield _change("step", before.step_ns, after.step_ns or 0, what)
        if whatif.on_ranks is not None:
            yield from _on_ranks(whatif.on_ranks, before.step_ns, after.step_ns or 0)
    else:
        yield "step    none is known: name the range that is one step with --step NAME"
    yield _change("window", before.window_ns, after.window_ns)
    yield ""
    if whatif.step_idle_before is None or whatif.step_idle_after is None:
        yield from _idle(whatif.idle_before, whatif.idle_after, "idle by cause")
    else:
        of_step = whatif.step_idle_before, whatif.step_idle_after
        yield from _idle(*of_step, "idle by cause, a step")
    if next_finding is not None:
        saving = amount_of(next_finding)
        yield f"then the largest finding: save {saving}: {next_finding.finding.title}"
    for note in whatif.notes:
        yield f"limit: {note}"


def _on_ranks(on_ranks: OnRanks, before_ns: int, after_ns: int) -> Iterator[str]:
    """How sure a step on more ranks is, what it gives, and what it sends."""
    ranks, least, most = on_ranks.ranks, on_ranks.step_low_ns, on_ranks.step_high_ns
    yield f"{'':<8}{duration(least)} to {duration(most)} on {number(ranks)} ranks"
    yield (
        f"work    {ranks * before_ns / (after_ns or 1):.2f} times that of one rank in the same time"
        f" ({on_ranks.speed_low:.2f} to {on_ranks.speed_high:.2f})"
    )
    for operation in dict.fromkeys(sent.operation for sent in on_ranks.sent):
        alike = [sent for sent in on_ranks.sent if sent.operation == operation]
        sizes = dict.fromkeys(in_bytes(size) for size in (alike[0].bytes, alike[-1].bytes))
        count, took_ns = (sum(getattr(sent, n) for sent in alike) for n in ("count", "gpu_ns"))
        times = number(round(count)) if count.is_integer() else significant(count)
        yield (
            f"sends   {operation} {times} times a step, {' to '.join(sizes)} each:"
            f" {duration(round(took_ns))}"
        )


def run_whatif_lines(name: str, whatif: RunWhatIf) -> Iterator[str]:
    """The lines of a run of ranks: the step of the slowest one.

    Args:
        name: of the run.
        whatif: the replay of all ranks together.
    """
    replayed = f"{name}: {number(whatif.ranks)} ranks replayed together"
    yield f"{replayed} without the profiler's share: {_known(estimated=whatif.estimated)}"
    what = f"the mean of {number(whatif.steps)} steps of the slowest rank"
    yield _change("step", whatif.before_ns, whatif.after_ns, what)
    yield ""
    yield from _idle(whatif.idle_before, whatif.idle_after, "idle by cause, a step")


def _known(*, estimated: bool) -> str:
    """Where the profiler's share is known from."""
    return "what recording usually costs" if estimated else "the plain step is known"


def run_whatif_json(whatif: RunWhatIf) -> str:
    """The document of `--json` of a run of ranks."""
    document = {
        "ranks": whatif.ranks,
        "step_before_ns": whatif.before_ns,
        "step_after_ns": whatif.after_ns,
        "steps": whatif.steps,
        "undisturbed": True,
        "estimated": whatif.estimated,
        "step_idle_before": whatif.idle_before,
        "step_idle_after": whatif.idle_after,
    }
    return json.dumps(document, indent=2)


def _change(name: str, before_ns: int, after_ns: int, what: str = "") -> str:
    saved_ns = before_ns - after_ns
    verb = "saves" if saved_ns >= 0 else "costs"
    part = share(abs(saved_ns), before_ns) or percent(0.0)
    times = f"{duration(before_ns)} → {duration(after_ns)}"
    line = f"{name:<8}{times:<21}{verb} {duration(abs(saved_ns))} ({part})"
    return f"{line}, {what}" if what else line


def _idle(was: Mapping[str, int], now: Mapping[str, int], title: str) -> Iterator[str]:
    """Idle time by cause, most of it after the change first."""
    causes = [cause for cause in CAUSES if was.get(cause) or now.get(cause)]
    if not causes:
        yield "no GPU is idle between two operations"
        return
    causes.sort(key=lambda cause: now[cause], reverse=True)
    yield f"{title:<24}{'before':>10}{'after':>10}"
    for cause in causes:
        before, after = (duration(idle_ns[cause]) for idle_ns in (was, now))
        yield f"  {CAUSES[cause].label:<22}{before:>10}{after:>10}"
    most = causes[0]
    yield ""
    if now[most]:
        yield f"then the largest cause of idle time: {CAUSES[most].label}"
    else:
        yield "then no GPU is idle between two operations"


def whatif_json(whatif: WhatIf, next_finding: Valued | None = None) -> str:
    """The document of `--json`."""
    following = None
    if next_finding is not None:
        following = {
            "rule": next_finding.finding.rule,
            "title": next_finding.finding.title,
            "method": next_finding.finding.method,
            "saving_high_ns": next_finding.high_ns,
        }
    document = {
        "window_before_ns": whatif.before.window_ns,
        "window_after_ns": whatif.after.window_ns,
        "step_before_ns": whatif.before.step_ns,
        "step_after_ns": whatif.after.step_ns,
        "steps": whatif.before.steps,
        "undisturbed": whatif.undisturbed,
        "estimated": whatif.estimated,
        "idle_before": whatif.idle_before,
        "idle_after": whatif.idle_after,
        "step_idle_before": whatif.step_idle_before,
        "step_idle_after": whatif.step_idle_after,
        "then": following,
        "limits": [str(note) for note in whatif.notes],
    }
    if whatif.on_ranks is not None:
        document["on_ranks"] = asdict(whatif.on_ranks)
    return json.dumps(document, indent=2)
