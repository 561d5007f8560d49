"""The policy has the documented size."""

from nsysflow.workloads.common.run import options_of
from nsysflow.workloads.policy.model import Sizes, initial_weights
from tests.workloads.policy.starts import TRAINSTEP


def test_the_usual_policy_has_62_080_parameters() -> None:
    sizes: Sizes = options_of(TRAINSTEP, "cuda", {})
    assert sum(weight.numel() for weight in initial_weights(sizes, "meta")) == 62_080
