"""Load the reports of a run and analyse them: one by one, or digests of many ranks, which workers
make and which are looked at whole.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import as_file, files
from itertools import islice
from operator import add
from pathlib import Path
from typing import Final, TypeVar

from nsysflow.analysis.analyze import Analysis, analyze, pieces_of
from nsysflow.analysis.findings.other_loop import largest_loop
from nsysflow.analysis.frames.scratch import Scratch
from nsysflow.analysis.load.export_tables import Shapes
from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import Digest, digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.selection.windows import domain_names, require_domains
from nsysflow.analysis.tables.index import ABOUT, declaration, declarations
from nsysflow.analysis.trace import Note, NoteKind, Trace
from nsysflow.base.errors import NsysflowError, ReportError, SelectionError
from nsysflow.base.names import SLURM, some_of
from nsysflow.base.progress import SILENT, Progress
from nsysflow.report.results import Origin, Results, typical_report
from nsysflow.runs.costs import usual_pct
from nsysflow.runs.engine import Choice, engine_of
from nsysflow.runs.manifest import Manifest, command_for_later_steps
from nsysflow.runs.notes import expected_notes, run_notes
from nsysflow.runs.paths import in_natural_order
from nsysflow.runs.resources import scratch_for
from nsysflow.runs.sources import Source, distinct_sources, load


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
    analysis = analyze(trace, wanted)
    if loops_are_timed(source.manifest, analysis):
        analysis = analyze(trace, replace(wanted, unrecorded_step_ns=None))
    return LoadedReport(analysis=analysis, domains=domains)


COMPARED_PCT: Final = 5
"""Other loops that take a smaller share of the time after start-up hardly lengthen a step."""


def loops_are_timed(manifest: Manifest | None, analysis: Analysis) -> bool:
    """Whether the unrecorded step of the manifest may contain another loop, which a recorded step
    never does. The program reports its evaluations, which are then left out; it reports no other
    loop."""
    if manifest is None or any(child.evaluations for child in manifest.children):
        return False
    if not (manifest.plain_step_ns or manifest.later_step_ns):
        return False
    loops = analysis.timeline.loops.paths
    if loops.is_empty():
        return False
    row = largest_loop(analysis.run, at_least_pct=COMPARED_PCT, only_before=True)
    return row is not None


def with_run(manifest: Manifest | None, options: Options) -> Options:
    """`options`, with what was said of the program when the run was profiled: its FLOPs, unless
    given now, what is its own, how long its steps took unrecorded, and what recording costs on this
    machine, and how the program was started."""
    if manifest is None:
        return options
    return replace(
        options,
        flops_per_step=options.flops_per_step or manifest.flops_per_step,
        flops_dtype=options.flops_dtype or manifest.flops_dtype,
        own=tuple(dict.fromkeys((*manifest.own, *options.own))),
        unrecorded_step_ns=options.unrecorded_step_ns or _unrecorded_step_ns(manifest, options),
        unrecorded_wait_ns=manifest.unrecorded_wait_ns,
        unrecorded_middle=None if manifest.plain_step_ns else manifest.middle_later_step,
        recording_pct=options.recording_pct or usual_pct(manifest),
        command=options.command or (manifest.command if manifest.workload is None else ()),
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
    if source.unread is not None:
        text = f"{source.unread}, so what the run was to record, and how it ended, is not known"
        trace = replace(trace, notes=(*trace.notes, Note(NoteKind.RUN, text)))
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


K = TypeVar("K")
V = TypeVar("V")

MANY: Final = 8
"""More reports than this are many: only some are looked at whole. Eight are the ranks of a node."""

OUTLIERS: Final = 3
"""So many outliers are looked at whole, beside the typical rank."""

_MOST_NAMES: Final = 4
"""So many ranks are named in one note."""


def reports_in_full(ranks: Ranks) -> frozenset[str]:
    """The reports to look at whole, by name: the typical rank's, and those of the outliers, first
    of the rank that computes longest, as no step is shorter."""
    outlying = dict.fromkeys(map(ranks.report_of, [*ranks.busiest, *ranks.outlying]))
    typical = typical_report(ranks)
    return frozenset(
        [typical, *islice((report for report in outlying if report != typical), OUTLIERS)]
    )


def notes_of_others(digests: Sequence[Digest], whole: Collection[str]) -> list[Note]:
    """What is to be known of the ranks that are not looked at whole: which of them fail a check,
    and a note of each kind that no rank looked at has."""
    others = [each for each in digests if each.report not in whole]
    said = {note.kind for each in digests if each.report in whole for note in each.notes}
    unfit = _by_key((failed.check, each.report) for each in others for failed in each.failed)
    noted = _by_key(
        (note.kind, (each.report, note.text))
        for each in others
        for note in each.notes
        if note.kind not in said
    )
    return [
        *(
            Note(NoteKind.UNFIT_RANKS, f"{_short_list(names)} cannot be judged: {check}")
            for check, names in unfit.items()
        ),
        *(
            Note(kind, f"{_short_list(name for name, _ in found)}: {found[0][1]}")
            for kind, found in noted.items()
        ),
    ]


def _by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in order."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _short_list(names: Iterable[str]) -> str:
    return some_of([*dict.fromkeys(names)], _MOST_NAMES)


DEMO: Final = "nan_check-sync.sqlite.xz"
"""The report that `nsysflow demo` analyses."""

PAGE: Final = (
    "findings",
    *(
        f"judged.{table.name}" if table.judged else table.name
        for table in declarations(ABOUT)
        if table.page_rows is not None and table.scope == "report"
    ),
)
"""What the page reads of each report: the tables of what is judged, and those that are not."""

_NEED_SHAPES: Final[Mapping[str, Shapes]] = {"kernels": True}
"""With these tables, it is read too how each kernel was launched; with others its grid alone:
steps are inferred by it, findings judge small grids, comparisons match kernels by name and grid."""


def analyze_reports(
    paths: Sequence[Path],
    options: Options,
    *,
    tables: Sequence[str] = PAGE,
    choice: Choice | None = None,
    strict: bool = False,
    low_memory: bool = False,
    progress: Progress = SILENT,
) -> Results:
    """Load and analyse reports, the ranks of one run: all of them whole if they are few. Of more
    than `MANY` workers make digests, and the typical rank and the outliers are analysed whole.

    Args:
        paths: report files, or folders of runs.
        options: what to narrow the analysis to. Of several reports, those that lack the step, range
            or time are left out with a note, and those without work on `device` without one.
        tables: what to compute now, on all cores: of `Analysis.compute`. Others are computed when
            they are read.
        choice: who makes the digests; processes if None.
        strict: whether a report that cannot be read is an error where there are several. If not,
            it is left out with a note.
        low_memory: whether to keep large tables on disk. Those of reports that are too large for
            memory are kept there anyway.
        progress: hears of each piece of work.

    Raises:
        ReportError: a report cannot be read: the only one, all of them, or any if `strict`.
        SelectionError: a report was given twice, or no report has what an option names.
        NsysflowError: no worker starts.
    """
    sources = distinct_sources(paths)
    origin = origin_of(sources, paths)
    if options.step is not None:
        origin = origin.of_loop()
    run = _Run(sources, options, strict=strict, low_memory=low_memory)
    if len(sources) <= MANY:
        analyses = run.analysed(sources, tables, progress)
        manifests = {source.name: source.manifest for source in sources}
        if any(loops_are_timed(manifests[each.trace.report], each) for each in analyses):
            origin = origin.of_loop()
        return Results(analyses, origin=origin, notes=run.notes())
    digests = run.digested(choice or Choice(), progress)
    ranks = Ranks.of(digests)
    whole = reports_in_full(ranks)
    analyses = run.analysed([one for one in sources if one.name in whole], tables, progress)
    notes = [*run.notes(), *notes_of_others(digests, whole)]
    return Results(analyses, origin=origin, notes=notes, ranks=ranks)


class _Run:
    """The reports of a run, and what is known once some of them were opened.

    Attributes:
        sources: all of them.
        left_out: why a report is not analysed, by its name.
        domains: the NVTX domains that the opened reports have.
    """

    def __init__(
        self, sources: Sequence[Source], options: Options, *, strict: bool, low_memory: bool
    ) -> None:
        self.sources = sources
        self.options = options
        self.strict = strict
        self.low_memory = low_memory
        self.left_out: dict[str, NsysflowError] = {}
        self.domains: set[str] = set()

    def analysed(
        self, sources: Sequence[Source], tables: Sequence[str], progress: Progress
    ) -> list[Analysis]:
        """Some of the reports, analysed whole in this process, one after the other.

        Raises:
            NsysflowError: see `analyze_reports`.
        """
        alone = len(self.sources) == 1
        names = [name for name in dict.fromkeys(tables) if _at_once(name, alone=alone)]
        pieces = pieces_of(names)
        needs = (need for name, need in _NEED_SHAPES.items() if name in tables)
        shapes: Shapes = next(needs, "grid")
        progress.expect(2 * pieces * len(sources))  # half of the time is loading
        analyses = []
        for source in sources:
            scratch = scratch_for(source.path, low_memory=self.low_memory)
            where = "" if scratch is None else f", with large tables in {scratch.folder}"
            progress.stage(f"loading {source.name}{where}")
            try:
                report = load_report(
                    source, self.options, alone=alone, shapes=shapes, scratch=scratch
                )
                progress.done(pieces)
                progress.stage(f"analysing {source.name}")
                self.domains |= report.domains
                if report.analysis is not None:
                    report.analysis.compute(*names, done=progress.done)
                    analyses.append(report.analysis)
            except NsysflowError as error:
                self._leave_out(source.name, error)
        self._require(analyses)
        return analyses

    def digested(self, choice: Choice, progress: Progress) -> list[Digest]:
        """The digests of all reports that can be read.

        Raises:
            NsysflowError: see `analyze_reports`.
        """
        made, failed = digest_reports(self.sources, self.options, choice, progress)
        for name, error in failed.items():
            self._leave_out(name, error)
        self.domains.update(*(each.domains for each in made))
        digests = [each.digest for each in made if each.digest is not None]
        self._require(digests)
        return digests

    def notes(self) -> list[Note]:
        """The reports that are left out, and why."""
        return [
            Note(NoteKind.LEFT_OUT, f"{name} is left out: {error.seen}")
            for name, error in self.left_out.items()
        ]

    def _leave_out(self, name: str, error: NsysflowError) -> None:
        """Note a report that cannot be analysed, if the others can do without it."""
        if len(self.sources) == 1 or not may_be_left_out(error, strict=self.strict):
            raise error
        self.left_out[name] = error

    def _require(self, found: Sequence[object]) -> None:
        """Refuse a run of which nothing is left, or that has no domain of a name."""
        if not found:
            no_device = _no_such_device(self.sources, self.options.device)
            raise next(iter(self.left_out.values()), no_device)
        require_domains(self.domains, self.options, f"any of {_names(self.sources)}")


def _at_once(name: str, *, alone: bool) -> bool:
    """Whether to compute a table beforehand; findings only where they are of this report alone."""
    return alone if name == "findings" else declaration(name.removeprefix("judged.")).at_once


def analyze_demo() -> Results:
    """Analyse the report that comes with nsysflow."""
    with as_file(files("nsysflow") / "samples" / DEMO) as report:
        return analyze_reports([report], Options())


def _has_ranks(manifest: Manifest) -> bool:
    """Whether a run has several ranks, or is the part of one node."""
    return manifest.processes is not None or len(manifest.reports) > 1


def _no_such_device(sources: Sequence[Source], device: int | None) -> SelectionError:
    return SelectionError(
        f"no device {device} in any of {_names(sources)}",
        "--table accounting lists the devices",
    )


def origin_of(sources: Sequence[Source], typed: Sequence[Path]) -> Origin:
    """Where the reports come from, by their manifests."""
    manifests = [source.manifest for source in sources]
    known = [each for each in manifests if each is not None]
    return Origin(
        paths={source.name: source.path for source in sources},
        on_cpu=all(each is not None and each.on == "cpu" for each in manifests),
        ranks=all(each is not None and _has_ranks(each) for each in manifests),
        killed=any(each.killed for each in known),
        plain_step_ns=max(filter(None, (each.plain_step_ns for each in known)), default=None),
        later_step_ns=max(filter(None, (each.later_step_ns for each in known)), default=None),
        later_middle=max(filter(None, (each.middle_later_step for each in known)), default=None),
        record_later=next(filter(None, map(command_for_later_steps, known)), ""),
        typed=tuple(sorted(typed, key=in_natural_order)),
        versions=known[0].versions if known else {},
        started=known[0].started if known else "",
    )


def _names(sources: Sequence[Source]) -> str:
    return some_of([source.name for source in sources], MANY)
