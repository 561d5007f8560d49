"""The columns of all tables, but for the causes. Made by `make docs`."""

from typing import Final

COLUMN_NAMES: Final = """\
algorithm_bytes_per_s allocated_bytes allocations alone_ns api api_mean_ns api_median_ns
api_p95_ns asked_bytes attention_ns backward batch_size batches batches_per_s begin_bytes
between_tokens_ns between_tokens_p95_ns block blocked_ns borrowed_ops bound bound_pct
bus_bytes_per_s busy_ns busy_pct bytes bytes_per_s call calls captured_ops cause cause_ns change
check class clock_ns clock_pct collective collectives comm_exposed_ns comm_hidden_pct comm_ns
communicator compute_ns context_tokens copy_exposed_ns copy_hidden_pct copy_label copy_ns cores
cost_copy_ns cost_group_ns cost_host_ns cost_ns cost_step_ns cost_work_ns count culprit
decode_requests decode_tokens depth descheduled_ns device direction done_ns dram_read_pct
dram_write_pct dtoh_bytes_per_s dtype duration_ns effort end_bytes end_ns ends_spread_ns
estimated every evidence excess_ns exclusive_kernel_ns exposed_ns fetch_median_ns fetch_p95_ns
finding first_token_max_ns first_token_ns fixed_bytes flops flops_per_s frameworks free_bytes
function functor gap gaps gil_ns gpu_busy_ns gpu_ns graph_estimate_ns grid group growing_bytes
growth_bytes hidden_pct highest_mhz holder holder_name host_range host_wait_ns host_wait_pct
host_wall_ns htod_bytes_per_s idle_ns impact induced_idle_ns inferred instances intensity kernel
kernel_ns kernel_pct kernels kind known_pct largest_ns last_device last_rank last_report late_ns
latency_median_ns latency_p95_ns later_ns launch_idle_ns launches least_flops length limit
limit_cores limited_by limited_pct loader lowest_mhz matched matmul_ns max_ns mean_ns
median_interval_ns median_kernel_ns median_ns members memory_clock_mhz method mfu_pct min_ns
name next_op ns ns_per_token nvlink_rx_bytes_per_s nvlink_tx_bytes_per_s of_steps operation
operator ops others_cores overlapped_ns overlapped_pct own_ops p95_ns padded_requests
padding_pct part path pcie_rx_bytes_per_s pcie_tx_bytes_per_s peak_bytes peak_bytes_per_s
peak_flops_per_s peak_ns peak_pct peak_phase peak_reserved_bytes per_step_ns persistent_workers
phase pin_memory plain_saving_high_ns plain_saving_low_ns power_w prefetch_factor
prefill_requests prefill_tokens prev_op process process_range_ops query_key_pairs
queue_median_ns queue_p95_ns ran_ns rank ranks registers report requests requests_per_step
reserved_bytes residual_ns roofline_pct rule run_ahead_median said_by samples saved_step_ns
saving_high_ns saving_low_ns saving_pct shapes share_pct shared_bytes short_name size_bytes
slow_ns sm_active_pct sm_clock_mhz sm_issue_pct source span_ns spread_ns stack start_method
start_ns started_cores starved_launches starved_pct std_ns steady steady_per_step_ns step
step_after_ns steps steps_last stream temperature_c tensor_active_pct thread throttled_ns
through time_ns times times_last tiny_pct title tokens tokens_per_s total_ns unit usable_bytes
used_cores via waited_ns waited_pct waiting_ns waiting_phase waits waves window_ns window_pct
worker workers z
"""
