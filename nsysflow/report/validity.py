"""What is said of a recording that is not fit to be judged, instead of a verdict."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Final

import polars as pl

from nsysflow.analysis.analyze import Analysis
from nsysflow.analysis.tables.validity import Check, FailedCheck, import_errors
from nsysflow.analysis.trace import Trace
from nsysflow.base.units import instant, number
from nsysflow.nsys.program import WITHOUT_XLA_RANGES
from nsysflow.report.results import Results

UNRELATED: Final = "unrelated-reports"
"""The check of several reports together; those of a single one are `Check`s."""

WITHOUT_STACKS: Final = "--backtrace none --sample-python 0"
"""Record a program without any Python stacks."""

XLA_MODULE: Final = "XlaModule:#"
"""How XLA's own range around a compiled function begins."""

LET_IT_END: Final = (
    "let every process end by itself (a pool: close() and join()), or record a part of the run with"
    " --capture or --duration"
)
"""The advice for a program that os._exit or a signal ended: nsys loses GPU work then."""

_NSYS: Final = re.compile(r"Nsight Systems (\d[\w.]*)")


@dataclass(frozen=True, kw_only=True)
class Invalid:
    """A check that failed.

    Attributes:
        why: the name of the check.
        sentence: what is wrong.
        advice: what to do next, a clause.
    """

    why: str
    sentence: str
    advice: str


def failures(results: Results) -> tuple[Invalid, ...]:
    """The checks that failed, the weightiest first; none where the recording can be judged."""
    failed = [
        (analysis, check) for analysis in results.analyses for check in analysis.failed_checks
    ]
    without_kernels = [check for _, check in failed if check.check is Check.NO_KERNELS]
    if (
        without_kernels
        and len(without_kernels) == len(results.analyses)
        and not results.origin.on_cpu
    ):
        return (_no_kernels(results, without_kernels[0]),)
    rest = [
        _incomplete(results, *analysis)
        for analysis in failed
        if analysis[1].check is not Check.NO_KERNELS
    ]
    return (*_unrelated(results), *rest)


def _no_kernels(results: Results, failed: FailedCheck) -> Invalid:
    first = results.analyses[0]
    if errors := import_errors(first.trace):
        sentence, advice = _not_imported(errors), _with_less(first)
    elif results.origin.killed and failed.count:
        sentence = "os._exit or a signal ended the program, so nsys could not save its kernels"
        advice = LET_IT_END
    else:
        sentence, advice = _not_seen(results, failed)
    return Invalid(
        why=str(Check.NO_KERNELS), sentence=f"No kernel in this report: {sentence}", advice=advice
    )


_OF_RECORDING: Final = re.compile(
    r"(?i)(?:cuda|cupti)\b.*\b(?:not supported|not been started|not started|events collected"
    r"|missing|lost|failed|error)\b|\bno cuda events\b|\b(?:failed|error)\b.*\b(?:cuda|cupti)\b"
)
"""What nsys says of its recording of CUDA, sentence by sentence."""

_COUNTED: Final = "Number of CUDA events collected"
"""nsys says this of each process that used CUDA while it was recorded …"""

_OF_OTHERS: Final = re.compile(r"(?i)not (?:been )?started correctly|^No CUDA events")
"""… and this of all others, most of which use none."""

_HEALTHY: Final = "Not all CUDA events might have been collected"
"""Healthy reports have it, too (docs/facts.md)."""

_TOO_NEW: Final = "is not supported by this build"
_QUOTED: Final = 3
_LONGEST: Final = 160
_LONGEST_MESSAGE: Final = 2_000


def _said(trace: Trace) -> tuple[str, ...]:
    """What nsys itself says of why a report has no kernel: sentences, each once."""
    text = trace.diagnostics["text"].drop_nulls()
    messages = text.filter(text.str.contains("(?i)cuda|cupti")).unique(maintain_order=True)
    sentences = (
        re.sub(r"\s+", " ", each).rstrip(". ")[:_LONGEST]
        for message in messages.str.head(_LONGEST_MESSAGE)
        for each in re.split(r"(?<=[.?!])\s+", message)
    )
    about = [*dict.fromkeys(each for each in sentences if _OF_RECORDING.search(each))]
    about = [each for each in about if _HEALTHY not in each]
    if any(each.startswith(_COUNTED) for each in about):
        about = [each for each in about if not _OF_OTHERS.search(each)]
    return tuple(sorted(about, key=lambda each: _TOO_NEW not in each)[:_QUOTED])


def _quoted(said: Sequence[str]) -> tuple[str, str]:
    """What nsys says, and what to do next."""
    advice = "if the program launches kernels, record it until it ends, with cuda in --trace"
    if any(_TOO_NEW in each for each in said):
        advice = "record again with a newer nsys"
    elif any("missing" in each for each in said):
        advice = LET_IT_END
    return "nsys says: " + "; ".join(f'"{each}"' for each in said), advice


def _not_seen(results: Results, failed: FailedCheck) -> tuple[str, str]:
    """Why nsys saw no kernel, and what to do next. What it says itself is no guess; that it has
    some events is no reason where kernels were launched."""
    said = _said(results.analyses[0].trace)
    if reasons := [each for each in said if not (failed.count and each.startswith(_COUNTED))]:
        return _quoted(reasons)
    recorder = _NSYS.search(results.analyses[0].trace.source)
    nsys = f"nsys {recorder[1]}" if recorder else "nsys"
    version = results.origin.versions.get("driver", "")
    driver = f"the driver ({version})" if version else "the driver"
    advice = "record again with a newer nsys"
    if failed.count:
        sentence = f"{nsys} is probably older than {driver}"
    elif failed.of:
        sentence = f"either the program launches none, or {nsys} is older than {driver}"
        advice = f"if it should launch some, {advice}"
    else:
        sentence = f"{nsys} is probably older than {driver}"
        advice += ", and with cuda in --trace"
    return sentence, advice


def _not_imported(errors: int) -> str:
    reported = "an error" if errors == 1 else f"{number(errors)} errors"
    return f"nsys reported {reported} while importing the recording"


def _with_less(analysis: Analysis) -> str:
    """What to leave out of the next recording if nsys could not import this one."""
    if analysis.trace.ranges["name"].cast(pl.String).str.starts_with(XLA_MODULE).any():
        again = analysis.options.recording(f"--nsys-arg={WITHOUT_XLA_RANGES}")
        return f"record again without XLA's ranges: {again}"
    if not (analysis.trace.backtraces.is_empty() and analysis.trace.samples.is_empty()):
        again = analysis.options.recording(WITHOUT_STACKS)
        return f"record again without Python stacks: {again}"
    return "record again with a newer nsys"


def _incomplete(results: Results, analysis: Analysis, failed: FailedCheck) -> Invalid:
    count, total = number(failed.count), number(failed.of)
    advice = "record again with a newer nsys"
    if failed.check is Check.IMPORT_ERRORS:
        what, advice = _not_imported(failed.count), _with_less(analysis)
    elif failed.check is Check.UNSTAMPED:
        what = f"{count} of {total} operations are stamped 0"
    else:
        when = f"from {instant(failed.start_ns)} to {instant(failed.end_ns)}"
        what = f"{count} of {total} launches have no operation ({when})"
        advice = "record again, for a shorter time or fewer steps"
    where = f" in {analysis.trace.report}" if len(results.analyses) > 1 else ""
    sentence = f"Incomplete capture{where}: {what}"
    return Invalid(why=str(failed.check), sentence=sentence, advice=advice)


def _unrelated(results: Results) -> Iterator[Invalid]:
    """The failure of several reports in which nothing says that they are ranks of one run."""
    if results.are_unrelated:
        first = results.every_report[0]
        path = quote(str(results.origin.paths.get(first, first)))
        yield Invalid(
            why=UNRELATED,
            sentence="These do not look like ranks of one run",
            advice=f"analyse each by itself: nsysflow analyze {path}",
        )
