"""What devices spend around their units, by hand."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.types import Device
from penstock.plan.pricing.costs import Costs
from penstock.plan.types import Stage, on
from penstock.profile.overhead import LATER, Overhead
from penstock.profile.types import Profile, Sizes, Times, Unit
from tests.support.reach import reach, reaches
from tests.support.small import hand_costs
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples

OVERHEAD = Overhead(kind="cpu", job_s=0.5, message_s=0.25, byte_s=0.125)


def costs_of(*stages: Stage, overheads: tuple[Overhead, ...] = (OVERHEAD,)) -> Costs:
    """Three units: F 1, I 2, W 3, step 4 seconds, 8 bytes between them, 16 saved, 24 of parameters."""
    times = Times(kind="cpu", micro_batch_size=1, forward_s=1, input_grad_s=2, weight_grad_s=3, step_s=4)
    sizes = Sizes(micro_batch_size=1, cut_bytes=8, saved_bytes=16)
    units = tuple(Unit(name=name, parameter_bytes=24, sizes=(sizes,), times=(times,)) for name in "abc")
    profile = Profile(name="p", micro_batch_size=1, units=units, overheads=overheads)
    devices = (
        Device(name="d0", host="h", kind="cpu"),
        Device(name="d1", host="h", kind="cpu", speed=0.5),
        Device(name="gpu", host="h", kind="gpu"),
    )
    return hand_costs(profile, devices, stages)


def stage(start: int, stop: int, ahead: str, back: str = "") -> Stage:
    return Stage(start=start, stop=stop, forward=on(ahead), backward=on(back or ahead))


def test_every_job_and_message_is_paid_by_the_device_that_has_it() -> None:
    costs = costs_of(stage(0, 1, "d0"), stage(1, 2, "d0"), stage(2, 3, "d1"))
    # A job takes 0.5 more, on d1 at half speed 1. The second stage sends 8 bytes (0.25 + 8 / 8), the third takes them
    # (0.5) and sends their gradient (0.5 + 8 / 4), which the second takes (0.25). What stays on d0 is no message.
    assert costs.forward_s.tolist() == [1.5, 1.5 + 1.25, 2 + 1 + 0.5]
    assert costs.input_grad_s.tolist() == [2.5, 2.5 + 0.25, 4 + 1 + 2.5]
    assert costs.weight_grad_s.tolist() == [3.5, 3.5, 6 + 1]
    assert costs.recompute_s.tolist() == [1.5, 1.5, 3.0]
    assert costs.step_s.tolist() == [4, 4, 8]
    assert costs.joined_s.tolist() == [0.5, 0.5, 1]
    assert costs.backward_s.tolist() == [5.5, 5.75, 13.5]


def test_receivers_and_constants_have_costs_of_their_own() -> None:
    spent = msgspec.structs.replace(
        OVERHEAD, receive_message_s=1.0, receive_byte_s=0.5, microbatch_s=16.0, iteration_s=32.0
    )
    costs = costs_of(stage(0, 1, "d0"), stage(1, 2, "d0"), stage(2, 3, "d1"), overheads=(spent,))
    # As above, but 8 bytes received take 1 + 8 / 2 (on d1 twice that). The first stage of each device has constants.
    assert costs.forward_s.tolist() == [1.5 + 16, 1.5 + 1.25, 2 + 1 + 10 + 32]
    assert costs.input_grad_s.tolist() == [2.5, 2.5 + 5, 4 + 1 + 2.5]
    assert costs.step_s.tolist() == [4 + 32, 4, 8 + 64]
    # Files, and digests, of profiles without them stay as they were.
    assert b"receive" not in msgspec.json.encode(OVERHEAD)
    for name in LATER:
        with pytest.raises(ValueError, match=r"finite|>= 0"):
            msgspec.json.decode(msgspec.json.encode(OVERHEAD)[:-1] + f', "{name}": -1.0}}'.encode(), type=Overhead)


def test_what_a_moved_backward_needs_is_paid_too() -> None:
    costs = costs_of(stage(0, 2, "d0"), stage(2, 3, "d0", "d1"))
    # 16 bytes saved go from d0 (0.25 + 16 / 8) to d1 (0.5), the gradient of 8 bytes the other way, and once a step
    # 24 bytes of parameters (0.5 + 24 / 4), which d0 copies (0.25 + 24 / 8), half of it with each of two forwards.
    assert costs.forward_s.tolist() == [2.5, 1.5 + 2.25 + 3.25 / 2]
    assert costs.input_grad_s.tolist() == [4.5 + 0.25, 4 + 1 + 0.5 + 2.5]
    assert costs.step_s.tolist() == [8, 8 + 6.5]


def test_forward_and_backward_in_different_places_take_longer() -> None:
    spent = Overhead(kind="cpu", job_s=0, message_s=0, byte_s=0, remote_ratio=0.25)
    again = msgspec.structs.replace(stage(1, 2, "d0", "d1"), recompute=True)
    costs = costs_of(stage(0, 1, "d0"), again, stage(2, 3, "d0", "d1"), overheads=(spent,))
    assert costs.forward_s.tolist() == [1, 1, 1.25]
    assert costs.input_grad_s.tolist() == [2, 4, 4 + 0.25 * 10]
    assert costs.weight_grad_s.tolist() == [3, 6, 6]


def test_a_backward_in_two_jobs_takes_longer() -> None:
    spent = Overhead(kind="cpu", job_s=0.5, message_s=0, byte_s=0, split_ratio=0.25)
    costs = costs_of(stage(0, 3, "d1"), overheads=(spent,))
    # On d1, at half speed, I and W of three units take 12 and 18 seconds; apart, 7.5 more, and a second for every job.
    assert costs.input_grad_s.tolist() == [13]
    assert costs.weight_grad_s.tolist() == [18 + 7.5 + 1]
    assert costs.backward_s.tolist() == [31]


def test_a_kind_that_was_not_measured_spends_nothing() -> None:
    costs = costs_of(stage(0, 2, "gpu"), stage(2, 3, "d0"))
    assert costs.joined_s.tolist() == [0, 0.5]
    assert costs.forward_s.tolist() == [2, 1.5 + 0.25]


def test_nothing_known_changes_nothing() -> None:
    stages = (stage(0, 1, "d0"), stage(1, 3, "d0", "d1"))
    plain, free = (
        costs_of(*stages, overheads=()),
        costs_of(*stages, overheads=(Overhead(kind="cpu", job_s=0, message_s=0, byte_s=0),)),
    )
    for name in ("forward_s", "recompute_s", "input_grad_s", "weight_grad_s", "backward_s", "step_s"):
        assert np.array_equal(getattr(plain, name), getattr(free, name))


@reaches(cheaper=0.01)
@examples(300)
@given(case=cases())
def test_one_job_is_never_dearer_than_two(case: Case) -> None:
    costs = case.costs
    assert np.all(costs.backward_s <= costs.input_grad_s + costs.weight_grad_s + 1e-12)
    assert costs.backward_s == pytest.approx(costs.input_grad_s + costs.weight_grad_s - costs.joined_s)
    reach("cheaper", (costs.joined_s > 0).any())
