"""One file a kernel: its shapes, and a problem of each."""

from collections.abc import Mapping
from typing import Final

from nsysflow.kernels.bench.problem import Kernel
from nsysflow.kernels.bench.problems import (
    advantage,
    copy,
    layernorm_relu_add,
    mingru_scan,
    muon,
    narrow_linear,
    ppo_loss,
    prio,
    rolloutcopy,
    select_copy,
    sum_many,
)

KERNELS: Final[Mapping[str, Kernel]] = {
    "copy": copy.KERNEL,
    "advantage": advantage.KERNEL,
    "prio": prio.KERNEL,
    "select_copy": select_copy.KERNEL,
    "rolloutcopy": rolloutcopy.KERNEL,
    "mingru_scan": mingru_scan.KERNEL,
    "narrow_linear": narrow_linear.KERNEL,
    "ppo_loss": ppo_loss.KERNEL,
    "layernorm_relu_add": layernorm_relu_add.KERNEL,
    "sum_many": sum_many.KERNEL,
    "muon": muon.KERNEL,
}
