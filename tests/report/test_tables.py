"""Tables as files: headers, plain numbers, which files there are."""

import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nsysflow.report import tables
from nsysflow.report.tables import (
    GAPS_CSV,
    GAPS_PARQUET,
    WHERE_THERE,
    GapsFormat,
    named_table,
    write_csv,
    write_files,
)
from tests.report.handmade import (
    MS,
    Handmade,
    Results,
    frame,
    handmade,
    measured,
    sampled,
    training,
    two_ranks,
)

CAUSE_COLUMNS = (
    "profiler_ns,sync_ns,blocking_copy_ns,alloc_ns,module_load_ns,api_ns,host_ns,launch_ns,"
    "queue_delay_ns,dependency_ns,unknown_ns"
)
HEADERS = {
    "gaps": (
        "report,device,gap,step,start_ns,end_ns,duration_ns,cause,culprit,source,via,phase,"
        f"waiting_phase,host_range,prev_op,next_op,{CAUSE_COLUMNS}"
    ),
    "findings": (
        "report,process,device,finding,rule,title,phase,source,via,culprit,saving_low_ns,"
        "saving_high_ns,saving_pct,method,steps,evidence,change"
    ),
    "gap_summary": (
        "report,device,phase,cause,culprit,source,via,gaps,total_ns,mean_ns,max_ns,"
        "per_step_ns,window_pct,steady_per_step_ns"
    ),
    "phases": (
        "report,process,path,depth,instances,host_wall_ns,ops,kernels,kernel_ns,busy_ns,span_ns,"
        f"launches,idle_ns,{CAUSE_COLUMNS},bound,bound_pct,mean_ns,median_ns,min_ns,max_ns,std_ns,"
        "p95_ns,exclusive_kernel_ns,graph_estimate_ns,own_ops,borrowed_ops,process_range_ops,captured_ops,"
        "steady_per_step_ns"
    ),
    "launches": (
        "report,process,path,launches,api_ns,api_mean_ns,api_median_ns,api_p95_ns,"
        "latency_median_ns,latency_p95_ns,queue_median_ns,queue_p95_ns,run_ahead_median,"
        "starved_launches,starved_pct"
    ),
    "syncs": (
        "report,process,api,kind,thread,start_ns,blocked_ns,gpu_busy_ns,induced_idle_ns,phase,"
        "source,via,bytes,direction,copy_label"
    ),
    "kernels": (
        "report,device,name,short_name,class,count,total_ns,mean_ns,median_ns,min_ns,max_ns,"
        "std_ns,p95_ns,share_pct,grid,block,registers,shared_bytes,waves,tiny_pct"
    ),
    "starved": (
        "report,device,phase,start_ns,end_ns,ops,kernels,median_kernel_ns,median_interval_ns,"
        "launch_idle_ns,idle_ns,graph_estimate_ns"
    ),
    "copies": (
        "report,process,device,phase,direction,copy_label,count,bytes,gpu_ns,api_ns,exposed_ns,"
        "induced_idle_ns"
    ),
    "steps": (
        "report,process,device,step,start_ns,end_ns,duration_ns,compute_ns,comm_exposed_ns,"
        f"copy_exposed_ns,idle_ns,{CAUSE_COLUMNS},bound,bound_pct,steady,kind"
    ),
    "step_groups": (
        "report,process,device,kind,steps,count,every,start_ns,total_ns,excess_ns,compute_ns,"
        "comm_exposed_ns,copy_exposed_ns,idle_ns,cause,cause_ns,second_cause,second_cause_ns,largest_ns,largest_cause,phase,culprit,source,via"
    ),
    "comm": (
        "report,process,device,phase,name,operation,count,bytes,total_ns,median_ns,busy_ns,"
        "exposed_ns,hidden_pct"
    ),
    "mfu": (
        "report,process,device,path,unit,flops,steps,time_ns,flops_per_s,peak_flops_per_s,mfu_pct"
    ),
    "arrivals": (
        "collective,name,operation,bytes,ranks,start_ns,spread_ns,last_report,last_device,"
        "ends_spread_ns,group,last_rank,cost_ns,done_ns"
    ),
    "waited": ("report,process,device,phase,kind,name,stream,waits,total_ns,largest_ns,window_pct"),
    "ranks": (
        "report,process,device,collectives,matched,times_last,late_ns,waited_ns,clock_ns,"
        "residual_ns,rank,cost_ns,cost_work_ns,cost_copy_ns,cost_group_ns,cost_host_ns"
    ),
    "rank_groups": (
        "group,kind,ranks,members,collectives,bytes,rank,report,device,times_last,steps,steps_last,"
        "cost_ns,cost_step_ns,saved_step_ns,late_ns,cost_work_ns,cost_copy_ns,cost_group_ns,cost_host_ns,through,"
        "waited_ns,overlapped_ns"
    ),
    "rank_steps": (
        "rank,report,process,device,step,duration_ns,compute_ns,comm_exposed_ns,copy_exposed_ns,"
        "idle_ns,late_ns,cost_ns"
    ),
    "bandwidth": (
        "group,kind,operation,size_bytes,ranks,count,bytes,done_ns,algorithm_bytes_per_s,"
        "bus_bytes_per_s,peak_bytes_per_s,peak_pct,overlapped_pct,slow_ns"
    ),
    "gpu_metrics": (
        "report,device,group,name,busy_ns,samples,sm_active_pct,sm_issue_pct,tensor_active_pct,"
        "dram_read_pct,dram_write_pct,bound"
    ),
}
"""As the command line's spec lists them; there phases.csv has two columns `host_ns`, of which the
first, the host's time in a phase, is `host_wall_ns`."""


def csv(name: str, **row: Any) -> str:
    """One row as CSV, without the header."""
    out = io.BytesIO()
    write_csv(frame(name, row), out)
    return out.getvalue().decode().split("\n", 1)[1]


@pytest.mark.parametrize("name", HEADERS)
def test_a_csv_file_has_the_promised_columns(name: str, tmp_path: Path) -> None:
    write_files(Results([training(), sampled(), measured(), *two_ranks()]), tmp_path)
    assert (tmp_path / f"{name}.csv").read_text().split("\n")[0] == HEADERS[name]


def test_the_promised_files_are_all_there(tmp_path: Path) -> None:
    write_files(Results([training(), sampled(), measured(), *two_ranks()]), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"{t}.csv" for t in HEADERS} | {
        "report.json"
    }


@pytest.mark.parametrize("name", WHERE_THERE)
def test_a_table_that_most_reports_lack_has_no_file_without_rows(name: str, tmp_path: Path) -> None:
    write_files(Results([handmade()]), tmp_path)
    assert not (tmp_path / f"{name}.csv").exists()


def test_null_is_empty_and_lines_end_in_a_newline_alone() -> None:
    row = csv("gap_summary", cause="host", culprit=None, per_step_ns=None, window_pct=0.1 + 0.2)
    assert row == "run.sqlite,0,,host,,,,0,0,0,0,,0.3,0\n"


@pytest.mark.parametrize(
    ("value", "text"), [(1e-5, "0.00001"), (123456789.5, "123456789.5"), (float("nan"), "")]
)
def test_a_number_is_never_in_powers_of_ten(value: float, text: str) -> None:
    assert csv("integrity", share_pct=value, check="a", impact="b") == f"run.sqlite,a,0,{text},b\n"


def test_a_name_with_a_comma_and_quotes_survives_csv() -> None:
    out = io.BytesIO()
    write_csv(frame("kernels", {"name": 'f<int, "a">\n'}), out)
    assert pl.read_csv(out.getvalue())["name"].item() == 'f<int, "a">\n'


def test_short_gaps_are_left_out_of_the_rows_but_not_of_the_sums() -> None:
    run = Results([training()])
    assert named_table(run, "gaps", at_least_ns=10 * MS)["gap"].to_list() == [7]
    assert named_table(run, "gap_summary", at_least_ns=10 * MS).height == 3


@pytest.mark.parametrize(
    ("form", "largest", "made"),
    [
        ("auto", 10**6, GAPS_CSV),
        ("auto", 10, GAPS_PARQUET),
        ("csv", 10, GAPS_CSV),
        ("parquet", 10**6, GAPS_PARQUET),
    ],
)
def test_gaps_are_csv_unless_that_is_large_or_parquet_is_asked_for(
    form: GapsFormat, largest: int, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LARGEST_GAPS_CSV_BYTES", largest)
    write_files(Results([training()]), tmp_path, gaps_format=form)
    (gaps,) = tmp_path.glob("gaps.*")
    assert gaps.name == made
    read = pl.read_csv(gaps) if made == GAPS_CSV else pl.read_parquet(gaps)
    assert (
        read["duration_ns"].to_list()
        == Results([training()]).table("gaps")["duration_ns"].to_list()
    )


def test_a_report_without_gaps_has_an_empty_list_of_them(tmp_path: Path) -> None:
    write_files(Results([Handmade(tables={})]), tmp_path)
    assert len((tmp_path / GAPS_CSV).read_text().splitlines()) == 1
