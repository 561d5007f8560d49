"""What a replay with changes gives, as text and as JSON."""

import json
from collections.abc import Iterator

from nsysflow.analysis.causes import CAUSES
from nsysflow.analysis.findings.finding import Valued
from nsysflow.analysis.replay.whatif import WhatIf
from nsysflow.base.units import duration, percent, share


def whatif_lines(report: str, found: WhatIf, then: Valued | None = None) -> Iterator[str]:
    """The lines that a person reads: step, window, idle time by cause, what to change next, limits.

    Args:
        report: its name.
        found: the replay.
        then: the finding that saves most beside the changes; None where none is known.
    """
    before, after = found.before, found.after
    yield f"{report} replayed; times are as recorded, under the profiler"
    if before.step_ns is not None:
        step = "selected step" if before.selected else "steady step"
        of = f"1 {step}" if before.steps == 1 else f"the mean of {before.steps} {step}s"
        yield _change("step", before.step_ns, after.step_ns or 0, of)
    else:
        yield "step    none is known: name the range that is one step with --step NAME"
    yield _change("window", before.window_ns, after.window_ns)
    yield ""
    yield from _idle(found)
    if then is not None:
        most = "" if then.finding.method == "replay" else "up to "
        yield f"then the largest finding: save {most}{duration(then.high_ns)}: {then.finding.title}"
    for note in found.notes:
        yield f"limit: {note}"


def _change(what: str, before_ns: int, after_ns: int, of: str = "") -> str:
    saved_ns = before_ns - after_ns
    verb = "saves" if saved_ns >= 0 else "costs"
    part = share(abs(saved_ns), before_ns) or percent(0.0)
    times = f"{duration(before_ns)} → {duration(after_ns)}"
    line = f"{what:<8}{times:<21}{verb} {duration(abs(saved_ns))} ({part})"
    return f"{line}, {of}" if of else line


def _idle(found: WhatIf) -> Iterator[str]:
    """Idle time by cause, most of it after the change first."""
    seen = [cause for cause in CAUSES if found.idle_before[cause] or found.idle_after[cause]]
    if not seen:
        yield "no GPU is idle between two operations"
        return
    seen.sort(key=lambda cause: found.idle_after[cause], reverse=True)
    yield f"{'idle by cause':<24}{'before':>10}{'after':>10}"
    for cause in seen:
        before, after = (duration(of[cause]) for of in (found.idle_before, found.idle_after))
        yield f"  {CAUSES[cause].label:<22}{before:>10}{after:>10}"
    most = seen[0]
    yield ""
    if found.idle_after[most]:
        yield f"then the largest cause of idle time: {CAUSES[most].label}"
    else:
        yield "then no GPU is idle between two operations"


def whatif_json(found: WhatIf, then: Valued | None = None) -> str:
    """The document of `--json`."""
    following = None
    if then is not None:
        following = {
            "rule": then.finding.rule,
            "title": then.finding.title,
            "method": then.finding.method,
            "saving_high_ns": then.high_ns,
        }
    document = {
        "window_before_ns": found.before.window_ns,
        "window_after_ns": found.after.window_ns,
        "step_before_ns": found.before.step_ns,
        "step_after_ns": found.after.step_ns,
        "steps": found.before.steps,
        "idle_before": found.idle_before,
        "idle_after": found.idle_after,
        "then": following,
        "limits": [str(note) for note in found.notes],
    }
    return json.dumps(document, indent=2)
