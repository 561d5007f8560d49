"""Every error nsysflow raises on purpose.

* NsysflowError      something a person can act on; the command line prints it and exits 1
  - ReportError      a report cannot be read
    + NotAReport     it is not a report of a kind we know
    + Damaged        it is truncated or corrupt
    + Busy           another program is writing it
    + Incomplete     it lacks a table or column that every export has
  - OutputError      an output cannot be written, or should not be overwritten
  - SelectionError   an option names something that this report does not hold
  - FlopsError       more FLOPs were declared than the GPU can do
  - CaptureError     what profile could not capture
    + NsysMissing    there is no nsys here, and none was asked for
    + ChildFailed    the program that was profiled failed; its exit code is the command's
  - SettingsError    a settings file holds something that is no option
  - WorkloadError    a built-in workload cannot run here, or stopped itself
    + UnknownWorkload  there is no workload, or no variant, of that name
    + WrongResult    its kernels are farther from float64 than they may be; exits 3, as bench does
  - BenchError       the kernels cannot be benchmarked as asked

A message has three parts: what was seen, in which file, what to type next.
"""


class NsysflowError(Exception):
    """Something a person can act on. The command line prints it and exits with `exit_code`."""

    exit_code = 1


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
    """An option names something that this report does not hold."""


class FlopsError(NsysflowError):
    """More FLOPs were declared than the GPU can do in the time."""


class CaptureError(NsysflowError):
    """What profile could not capture."""


class NsysMissing(CaptureError):
    """There is no nsys here, and none was asked for."""


class ChildFailed(CaptureError):
    """The program that was profiled failed; its exit code is the command's."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class SettingsError(NsysflowError):
    """A settings file holds something that is no option."""


class WorkloadError(NsysflowError):
    """A built-in workload cannot run here, or stopped itself."""


class UnknownWorkload(WorkloadError):
    """There is no workload, or no variant, of that name."""


class WrongResult(WorkloadError):
    """A workload's kernels are farther from float64 than they may be, as its table says."""

    exit_code = 3


class BenchError(NsysflowError):
    """The kernels cannot be benchmarked as asked."""
