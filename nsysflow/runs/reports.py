"""One report of a run, loaded and ready to be analysed; and digests of many, made by workers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add

from nsysflow.analysis.analyze import Analysis, analyze
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import Digest, digest
from nsysflow.analysis.selection.windows import domain_names
from nsysflow.analysis.trace import Trace
from nsysflow.base.errors import NsysflowError, ReportError, SelectionError
from nsysflow.base.names import SLURM
from nsysflow.base.progress import Progress
from nsysflow.runs.engine import Choice, engine_of
from nsysflow.runs.loading import load
from nsysflow.runs.manifest import Manifest
from nsysflow.runs.notes import expected_notes, run_notes
from nsysflow.runs.sources import Source


@dataclass(frozen=True, kw_only=True)
class LoadedReport:
    """A report that was loaded.

    Attributes:
        analysis: of it; None for a rank whose work ran on other GPUs than the one to look at.
        domains: the NVTX domains that it has.
    """

    analysis: Analysis | None
    domains: frozenset[str]


def load_report(
    source: Source,
    options: Options,
    *,
    alone: bool,
    shapes: Shapes = "grid",
    scratch: Scratch | None = None,
) -> LoadedReport:
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
            return LoadedReport(analysis=None, domains=domains)
        wanted = _with_domains(domains, wanted)
    return LoadedReport(analysis=analyze(trace, wanted), domains=domains)


def with_run(manifest: Manifest | None, options: Options) -> Options:
    """`options`, with what was said of the program when the run was profiled: its FLOPs, unless
    given now, what is its own, and how long its steps took unrecorded."""
    if manifest is None:
        return options
    return replace(
        options,
        flops_per_step=options.flops_per_step or manifest.flops_per_step,
        flops_dtype=options.flops_dtype or manifest.flops_dtype,
        own=tuple(dict.fromkeys((*manifest.own, *options.own))),
        unrecorded_step_ns=options.unrecorded_step_ns or _unrecorded_step_ns(manifest, options),
    )


def _unrecorded_step_ns(manifest: Manifest, options: Options) -> int | None:
    """How long a step took in the plain run, else after the recording, if all steps of the
    program's own loop are asked for."""
    if options.step or options.steps or options.range or options.whole:
        return None
    return manifest.plain_step_ns or manifest.later_step_ns


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


@dataclass(frozen=True, kw_only=True)
class Digested:
    """What a worker says of a report that it read.

    Attributes:
        digest: of the report; None where its work ran on other GPUs than the one to look at.
        domains: the NVTX domains that it has.
    """

    digest: Digest | None
    domains: frozenset[str]


def digest_report(source: Source, options: Options) -> tuple[Digested, ...]:
    """Load, analyse and digest one report; one result, which `digest_reports` joins with others.

    Raises:
        ReportError: it cannot be read.
        SelectionError: it has not what an option names.
    """
    report = load_report(source, options, alone=False)
    analysis = report.analysis
    made = None if analysis is None else digest(analysis)
    return (Digested(digest=made, domains=report.domains),)


def digest_reports(
    sources: Sequence[Source], options: Options, choice: Choice, progress: Progress
) -> tuple[tuple[Digested, ...], dict[str, NsysflowError]]:
    """What became of the reports that could be read, in order, and why others could not, by name.

    Raises:
        NsysflowError: the workers cannot start.
    """
    progress.expect(len(sources))
    by_slurm = " as soon as Slurm starts workers" * (choice.scheduler == SLURM)
    progress.stage(f"analysing {len(sources)} reports{by_slurm}")
    work = partial(digest_report, options=options)
    with engine_of(choice, [source.path for source in sources]) as engine:
        made = engine.merged(work, [*map(_anywhere, sources)], add, progress.done)
    failed = {sources[n].name: _as_typed(made.failed[n], sources[n]) for n in sorted(made.failed)}
    return made.value or (), failed


def _anywhere(source: Source) -> Source:
    """A source that a worker finds from any folder."""
    return replace(source, path=source.path.absolute())


def _as_typed(error: NsysflowError, source: Source) -> NsysflowError:
    """An error of a worker, with the report's path as it was typed."""
    path = str(source.path.absolute())
    error.seen = error.seen.replace(path, str(source.path))
    error.command = error.command.replace(path, str(source.path))
    return error
