from dataclasses import replace

import pytest

from nsysflow.analysis.options import Options, StepPart
from nsysflow.analysis.ranks.digest import digest
from nsysflow.analysis.ranks.ranks import Ranks
from nsysflow.analysis.tables.index import ABOUT, declarations
from tests.analyses import analysed, few_reports
from tests.report.handmade import Results, found_of, handmade, stepped, valued

TYPED = "--device 1 --steps 2: --steps '!7'"


def test_the_tables_of_a_run_are_of_all_its_reports() -> None:
    both = Results([analysed(f"h200-ddp-rank{number}") for number in (0, 1)])
    assert both.table("arrivals").height == 30
    assert both.table("ranks")["report"].to_list() == ["h200-ddp-rank0", "h200-ddp-rank1"]
    assert Results([handmade()]).table("ranks").is_empty()


@few_reports
def test_one_rank_has_the_tables_of_ranks_that_its_digest_gives(name: str) -> None:
    analysis = analysed(name)
    run, ranks = Results([analysis]), Ranks.of([digest(analysis)])
    of_run = [table.name for table in declarations(ABOUT) if table.scope == "run"][1:]
    assert of_run
    assert all(run.table(name).equals(ranks.table(name)) for name in of_run)


def test_the_judged_part_has_the_findings_of_the_run() -> None:
    run = Results([stepped(found_of(valued()))])
    assert len(run.findings) == 1
    assert run.judged.findings.equals(run.findings)


@pytest.mark.parametrize(
    ("options", "typed"),
    [
        (Options(), ""),
        (Options(device=1, steps=(StepPart(2), StepPart(7, 8, out=True))), TYPED),
        (Options(range="my range", from_ns=1_500_000_000), "--range 'my range' --from 1.5"),
        (Options(step="my step", skip=0), "--step 'my step' --skip 0"),
        (Options(whole=True), "--whole"),
    ],
)
def test_a_run_can_be_typed_again_with_what_chooses_its_judged_part(
    options: Options, typed: str
) -> None:
    run = Results([replace(handmade(), options=options)])
    assert run.again == f"run.sqlite {typed}".strip()
