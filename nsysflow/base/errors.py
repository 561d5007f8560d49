"""Every error nsysflow raises on purpose.

* NsysflowError      something a person can act on; the command line prints it and exits 1
  - ReportError      a report cannot be read
    + NotAReport     it is not a report of a kind we know
    + Damaged        it is truncated or corrupt
    + Busy           another program is writing it
    + Incomplete     it lacks a table or column that every export has
  - OutputError      an output cannot be written, or should not be overwritten
  - SelectionError   an option names something that is not in this report
    + UnknownName    a change or a budget names what is not in this report; exits 2
  - FlopsError       more FLOPs were declared than the GPU can do
  - CaptureError     `profile` could not capture the program
    + NsysMissing    there is no nsys here, and none was asked for
    + ChildFailed    the profiled program failed; the command exits with its code
  - SettingsError    a settings file holds something that is not an option
  - WorkloadError    a built-in workload cannot run here, or stopped itself
    + UnknownWorkload  no workload, or no variant, has that name; exits 2
    + WrongResult    its kernels are too far from float64; exits 3, as bench does
  - BenchError       the kernels cannot be benchmarked as asked
  - CheckError       `check` cannot judge a report
    + WrongBudget    a budget is none, or contradicts another; exits 2

Each says what was seen, what to do, and what to type next. Where a name is not known, the
advice is the names most like it.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from enum import IntEnum
from pathlib import Path
from shlex import quote
from textwrap import indent
from typing import Final

from nsysflow.base.names import one_line

Remedy = tuple[str, str]
"""What to do and what to type: the advice and the command of an error."""


def export_again(
    report: str | Path = "REPORT.nsys-rep",
    out: str | Path = "",
    *,
    kind: str = "sqlite",
    json: bool = False,
) -> Remedy:
    """How to make an export again, over an earlier one.

    Args:
        report: what to export.
        out: the export; without it nsys writes to the current folder.
        kind: the type of export.
        json: with the JSON of events.
    """
    options = [f"--type {kind}", "--force-overwrite=true"]
    options += ["--include-json=true"] * json
    options += [f"--output={quote(str(out))}"] * bool(out)
    return "Export it again", f"nsys export {' '.join(options)} {quote(str(report))}"


def record_again(*, collector: str | None = None) -> Remedy:
    """How to record a program again, by the collector of that name or by nsysflow's choice."""
    by = f" --collector {collector}" if collector else ""
    return "Record the program again", f"nsysflow profile{by} -- COMMAND"


class ExitCode(IntEnum):
    """How a command ends that did not do its work; click's own code for wrong usage is 2."""

    FAILED = 1
    WRONG_RESULT = 3
    CROSSED = 3
    """`check` found a budget that is crossed."""
    TOO_NOISY = 4
    """`check` found none, but one that it could not judge."""
    INTERRUPTED = 130
    """What shells give a program that Ctrl-C ended."""
    READER_LEFT = 141
    """What shells give a program whose reader, such as `head`, had read enough."""


class NsysflowError(Exception):
    """Something a person can act on. The command line prints it and exits with `exit_code`.

    Attributes:
        seen: what was seen, in which file; a sentence without its full stop.
        advice: what to do; a sentence without its full stop, or empty.
        command: what to type next, one command a line, or empty.
    """

    exit_code: int = ExitCode.FAILED

    def __init__(self, seen: str, advice: str = "", command: str = "") -> None:
        super().__init__(seen, advice, command)
        self.seen = seen
        self.advice = advice
        self.command = command

    def __str__(self) -> str:
        text = f"{self.seen}. {self.advice}" if self.advice else self.seen
        return text + ":" + indent("\n" + self.command, "  ") if self.command else text


def not_installed(package: str | None, extra: str) -> NsysflowError:
    """A package of one of nsysflow's extras is missing."""
    install = f"pip install 'nsysflow[{extra}]'"
    return NsysflowError(f"the package {package} is not installed", "Install it", install)


class ReportError(NsysflowError):
    """A report cannot be read."""


class NotAReport(ReportError):
    """The file is not a report of a kind we know."""


class Damaged(ReportError):
    """The file is truncated or corrupt."""


class Busy(ReportError):
    """Another program is writing the file."""


class Incomplete(ReportError):
    """The report lacks a table or column that every export has."""


class OutputError(NsysflowError):
    """An output cannot be written, or should not be overwritten."""


class SelectionError(NsysflowError):
    """An option names something that is not in this report."""


class UnknownName(SelectionError):
    """A change or a budget names a phase, line, kernel or call that is not in this report."""

    exit_code = 2


class FlopsError(NsysflowError):
    """More FLOPs were declared than the GPU can do in the time."""


class CaptureError(NsysflowError):
    """`profile` could not capture the program.

    Attributes:
        output: the last lines that the program or nsys printed, shown below the message.
    """

    def __init__(
        self, seen: str, advice: str = "", command: str = "", *, output: Sequence[str] = ()
    ) -> None:
        super().__init__(seen, advice, command)
        self.output = tuple(output)

    def __str__(self) -> str:
        message = super().__str__()
        if not self.output:
            return message
        return "\n".join([message, "The last lines of output:", *(f"  {x}" for x in self.output)])


class NsysMissing(CaptureError):
    """No nsys was found, and none was asked for."""


class ChildFailed(CaptureError):
    """The profiled program failed; the command exits with its code."""

    def __init__(
        self,
        seen: str,
        advice: str = "",
        command: str = "",
        *,
        exit_code: int,
        output: Sequence[str] = (),
    ) -> None:
        super().__init__(seen, advice, command, output=output)
        self.exit_code = exit_code


class SettingsError(NsysflowError):
    """A settings file holds something that is not an option."""


class WorkloadError(NsysflowError):
    """A built-in workload cannot run here, or stopped itself."""


class UnknownWorkload(WorkloadError):
    """No workload, or no variant, has that name."""

    exit_code = 2


class WrongResult(WorkloadError):
    """A workload's kernels are too far from float64, as its table says."""

    exit_code = ExitCode.WRONG_RESULT


class BenchError(NsysflowError):
    """The kernels cannot be benchmarked as asked."""


class CheckError(NsysflowError):
    """`check` cannot judge a report, or has no baseline to judge it by."""


class WrongBudget(CheckError):
    """A budget is none, can never be crossed or kept, or contradicts another."""

    exit_code = 2


_ANY: Final = 8
"""So many names are listed where none is near."""


def nearest(name: str, known: Iterable[str], *, most: int = 3) -> list[str]:
    """The known names most like `name` in any case, nearest first."""
    spelled = {name.casefold(): name for name in known}
    return [spelled[match] for match in get_close_matches(name.casefold(), spelled, n=most)]


def near_or_all(name: str, known: Iterable[str], *, where: str = "") -> str:
    """The names most like `name`, else the first ones, and how many more there are: an advice for
    an error, empty where nothing is known.

    Args:
        name: what was typed.
        known: what there is.
        where: what shows all of them.
    """
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    shown = near or names[:_ANY]
    if not shown:
        return ""
    said = (
        f"Did you mean {' or '.join(near)}?"
        if near
        else f"{_there(len(names))}: {', '.join(map(one_line, shown))}"
    )
    more = len(names) - len(shown)
    if not more:
        return said
    said = said if near else f"{said}."
    lists = f"; {where} shows all" if where else ""
    return f"{said} {_there(more)} {more} more{lists}"


def _there(count: int) -> str:
    return "There is" if count == 1 else "There are"
