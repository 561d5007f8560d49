"""One report of a run, loaded and ready to be analysed."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from nsysflow.analysis.analyze import Analysis, analyze
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.options import Options
from nsysflow.analysis.selection.windows import domain_names
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import NsysflowError, ReportError, SelectionError
from nsysflow.loading import load
from nsysflow.runs.manifest import Manifest
from nsysflow.runs.notes import expected_notes, run_notes
from nsysflow.runs.sources import Source


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A report that was loaded.

    Attributes:
        analysis: of it; None for a rank whose work ran on other GPUs than the one to look at.
        domains: the NVTX domains that it has.
    """

    analysis: Analysis | None
    domains: frozenset[str]


def opened(
    source: Source,
    options: Options,
    *,
    alone: bool,
    shapes: Shapes = False,
    scratch: Scratch | None = None,
) -> Opened:
    """Load a report; its tables are computed when they are read.

    Args:
        source: which one.
        options: what to narrow the analysis to.
        alone: whether it is the run's only report. Of several, each looks only at the domains that
            it has.
        shapes: as for `load`.
        scratch: as for `load`.

    Raises:
        ReportError: it cannot be read.
    """
    trace = _load(source, shapes=shapes, scratch=scratch)
    domains = frozenset(domain_names(trace.ranges))
    wanted = with_run(source.manifest, options)
    if not alone:
        if options.device is not None and options.device not in trace.ops["device"]:
            return Opened(analysis=None, domains=domains)
        wanted = _with_domains(domains, wanted)
    return Opened(analysis=analyze(trace, wanted), domains=domains)


def with_run(manifest: Manifest | None, options: Options) -> Options:
    """`options`, with what was said of the program when the run was profiled: its FLOPs, unless
    given now, and what is its own."""
    if manifest is None:
        return options
    return replace(
        options,
        flops_per_step=options.flops_per_step or manifest.flops_per_step,
        flops_dtype=options.flops_dtype or manifest.flops_dtype,
        own=tuple(dict.fromkeys((*manifest.own, *options.own))),
    )


def may_be_left_out(error: NsysflowError, *, strict: bool) -> bool:
    """Whether the other ranks are analysed without the one of this error: often, evaluation is a
    single rank's work; and of 1,024 reports one may be damaged, unless none may."""
    return isinstance(error, SelectionError) or (isinstance(error, ReportError) and not strict)


def _load(source: Source, *, shapes: Shapes, scratch: Scratch | None) -> Trace:
    """The trace under its report's name, with the notes on its run."""
    trace = load(source.path, shapes=shapes, scratch=scratch)
    if source.manifest is not None:
        notes = (*expected_notes(source.manifest, trace), *run_notes(source.manifest, trace))
        trace = replace(trace, notes=notes)
    return replace(trace, report=source.name)


def _with_domains(there: Collection[str], options: Options) -> Options:
    """`options` with only the NVTX domains that this rank has: another one may have the rest."""
    return replace(
        options,
        domains_added=tuple(name for name in options.domains_added if name in there),
        domains_removed=tuple(name for name in options.domains_removed if name in there),
    )
