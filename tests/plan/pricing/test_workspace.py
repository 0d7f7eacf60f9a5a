"""What jobs need for themselves, by hand."""

import pytest
from msgspec.structs import replace

from penstock.cluster.types import Device
from penstock.errors import InputError
from penstock.plan.pricing.costs import Costs
from penstock.plan.types import Group, Stage, on
from penstock.profile.types import Profile, Sizes, Times, Unit
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.schedules.registry import schedule
from tests.support.small import hand_costs

SIZES = (24, 40, 8)
LARGEST = (16, 40, 4)


def make_profile(largest: tuple[int, ...] = LARGEST, optimizer_ratio: float = 2.0) -> Profile:
    times = (Times(kind="cpu", micro_batch_size=1, forward_s=1, input_grad_s=2, weight_grad_s=3),)
    sizes = (Sizes(micro_batch_size=1, cut_bytes=3, saved_bytes=2),)
    units = tuple(
        Unit(name=name, parameter_bytes=size, sizes=sizes, times=times) for name, size in zip("abc", SIZES, strict=True)
    )
    return Profile(
        name="p", micro_batch_size=1, units=units, largest_parameter_bytes=largest, optimizer_ratio=optimizer_ratio
    )


def costs_of(profile: Profile, *stages: tuple[int, int, Group, Group]) -> Costs:
    devices = tuple(Device(name=f"d{number}", host="h", kind="cpu") for number in range(3))
    made = [Stage(start=start, stop=stop, forward=ahead, backward=back) for start, stop, ahead, back in stages]
    return hand_costs(profile, devices, made)


STAGES = ((0, 2, on("d0"), on("d0")), (2, 3, on("d1"), on("d1")))


def test_the_largest_parameter_once_more_and_another_time_at_the_step() -> None:
    costs = costs_of(make_profile(), *STAGES)
    # Between the units of the first stage 3 bytes pass.
    assert costs.work_bytes.tolist() == [40 + 3, 4, 0]
    assert costs.more_at_step_bytes.tolist() == [40, 4, 0]
    assert costs.static_bytes.tolist() == [4 * 64 + 40 + 3, 4 * 8 + 4, 0]
    assert costs_of(make_profile(optimizer_ratio=0.0), *STAGES).more_at_step_bytes.tolist() == [0, 0, 0]


def test_fresh_parameters_wait_where_the_forward_is() -> None:
    costs = costs_of(make_profile(), (0, 1, on("d0"), on("d0")), (1, 3, on("d1"), on("d2")))
    assert costs.work_bytes.tolist() == [16, 48, 40 + 3]


def test_nothing_where_the_profile_does_not_say() -> None:
    costs = costs_of(make_profile(()), *STAGES)
    assert not costs.work_bytes.any()
    assert not costs.more_at_step_bytes.any()


def test_the_peak_may_be_at_the_step() -> None:
    costs = costs_of(make_profile(), *STAGES)
    proof = prove(lower(schedule(costs), costs), costs)
    # Two micro-batches keep two bytes a unit: less than what the step needs. The last gradient is still on its way.
    assert proof.peak_bytes.tolist() == [4 * 64 + 40 + 3 + 40, 4 * 8 + 4 + 4 + 3, 0]


def test_an_old_profile_keeps_its_digest() -> None:
    profile = make_profile(())
    assert profile.digest == "sha256:156204fbbb9d6de533b8b578dd0d1656"
    assert profile.digest != make_profile().digest


@pytest.mark.parametrize(("largest", "text"), [((1, 2), "2 entries for 3 "), ((25, 40, 8), "layer 'a'")])
def test_wrong_sizes_are_refused(largest: tuple[int, ...], text: str) -> None:
    with pytest.raises((ValueError, InputError), match=text):
        replace(make_profile(()), largest_parameter_bytes=largest)
