"""A fused step keeps its memory, as a CUDA graph needs."""

from nsysflow.workloads.common.phases import parts_of
from nsysflow.workloads.policy.variants import training_phases, variant_of
from tests.workloads.policy.starts import small_start


def test_weights_and_gradients_stay_at_their_addresses() -> None:
    step = variant_of("fused", small_start("bf16"))

    def addresses() -> list[int]:
        held = (*step.masters, *step.momenta, *step.working, *step.gradients)
        return [each.data_ptr() for each in held]

    before = addresses()
    for part in parts_of(training_phases(step)):
        part.work()
    assert addresses() == before
