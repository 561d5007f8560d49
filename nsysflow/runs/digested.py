"""The digests of many reports, made by workers: only these travel."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add

from nsysflow.analysis.options import Options
from nsysflow.analysis.ranks.digest import Digest
from nsysflow.base.errors import NsysflowError
from nsysflow.base.progress import Progress
from nsysflow.engine.choice import Choice, engine_of
from nsysflow.engine.slurm import SLURM
from nsysflow.runs.opened import opened
from nsysflow.runs.sources import Source


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
    report = opened(source, options, alone=False)
    analysis = report.analysis
    digest = None if analysis is None else analysis.digest
    return (Digested(digest=digest, domains=report.domains),)


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
