"""A plan priced by hand: unequal kinds, speeds and shares, times affine in the rows, ties, a moved backward."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from penstock.cluster.types import Cluster, Device, Host, Wire
from penstock.errors import MismatchError
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.pricing import price
from penstock.plan.types import Group, Origin, Plan, Replica, Stage, on
from penstock.profile.device_kinds import relative_speed
from penstock.profile.types import Profile, Sizes, Tie, Times, Unit
from tests.support.reach import reach, reaches
from tests.support.small import hand_plan
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


def unit(name: str, forward: tuple[float, float], cut: Any, saved: Any, pending: Any, parameters: int) -> Unit:
    """Measured for 2 and for 8 rows; I takes a second a row, W 4 seconds, the step 2; a quick device half of that."""
    return Unit(
        name=name,
        parameter_bytes=parameters,
        sizes=tuple(
            Sizes(micro_batch_size=rows, cut_bytes=cut[at], saved_bytes=saved[at], pending_bytes=pending[at])
            for at, rows in enumerate((2, 8))
        ),
        times=tuple(
            Times(
                kind=kind,
                micro_batch_size=rows,
                forward_s=forward[at] / speed,
                input_grad_s=rows / speed,
                weight_grad_s=4 / speed,
                step_s=(1.0, 3.0)[at] / speed,
            )
            for kind, speed in (("slow", 1), ("quick", 2))
            for at, rows in enumerate((2, 8))
        ),
    )


PROFILE = Profile(
    name="hand",
    micro_batch_size=4,
    units=(
        unit("a", (3, 9), (10, 40), (20, 80), (None, None), 100),  # F = 1 + rows
        unit("b", (2, 2), (4, 10), (6, 24), (2, 8), 60),  # F = 2
        unit("c", (4, 16), (7, 7), (2, 8), (None, None), 40),  # F = 2 rows
    ),
    input_bytes=12,
    ties=(
        Tie(name="inside", parameter_bytes=30, units=(1, 2)),
        Tie(name="across", parameter_bytes=10, units=(0, 2)),
    ),
    gradient_ratio=0.5,
    optimizer_ratio=3.0,
)
CLUSTER = Cluster(
    name="hand",
    hosts=(Host(name="h", inside=Wire(bandwidth=10.0)),),
    devices=(
        Device(name="d0", host="h", kind="slow"),
        Device(name="d1", host="h", kind="quick", speed=2.0),
        Device(name="d2", host="h", kind="other", speed=0.5, memory_bytes=1000),
    ),
    between=Wire(bandwidth=1.0),
)


def plan_of(*groups: tuple[int, int, Group, Group], recompute: bool = False, **changes: Any) -> Plan:
    stages = [
        Stage(start=start, stop=stop, forward=forward, backward=backward, recompute=recompute)
        for start, stop, forward, backward in groups
    ]
    plan = hand_plan(PROFILE, CLUSTER, stages, rows=8)
    return msgspec.structs.replace(plan, **changes)


SHARED = (Replica("d0", 0.75), Replica("d1", 0.25))
PLAN = plan_of((0, 1, SHARED, SHARED), (1, 3, on("d2"), on("d2")))


def test_seconds() -> None:
    costs = price(PLAN, PROFILE, CLUSTER)
    # d0: 6 of 8 rows on a slow device; d1: 2 rows on a quick one of twice its kind's speed; d2: all rows, of an
    # unknown kind, so as a slow one, at half its speed.
    assert costs.share.tolist() == [0.75, 0.25, 1.0]
    assert costs.forward_device.tolist() == costs.backward_device.tolist() == [0, 1, 2]
    assert costs.forward_s == pytest.approx([1 + 6, (1 + 2) / 2 / 2, (2 + 16) / 0.5])
    assert costs.input_grad_s == pytest.approx([6, 2 / 2 / 2, (8 + 8) / 0.5])
    assert costs.weight_grad_s == pytest.approx([4, 4 / 2 / 2, (4 + 4) / 0.5])
    assert costs.step_s == pytest.approx([2, 2 / 2 / 2, (2 + 2) / 0.5])
    assert costs.recompute_s == pytest.approx(costs.forward_s)
    (note,) = costs.notes
    assert note.startswith("the profile has no times for other")
    assert note.endswith("assumed to be as fast as slow")


def test_sizes() -> None:
    costs = price(PLAN, PROFILE, CLUSTER)
    # For 8 rows: the input of 12 bytes is for 4 rows; the cut behind a is 40; nothing leaves the last stage.
    assert costs.input_bytes == pytest.approx([24, 40])
    assert costs.output_bytes == pytest.approx([40, 0])
    assert costs.saved_bytes == pytest.approx([80, 24 + 8])
    # c has no pending_bytes of its own: as much as it saved.
    assert costs.pending_bytes == pytest.approx([80, 8 + 8])
    assert costs.kept_bytes == pytest.approx([80, 32])
    again = price(plan_of((0, 1, SHARED, SHARED), (1, 3, on("d2"), on("d2")), recompute=True), PROFILE, CLUSTER)
    assert again.kept_bytes == pytest.approx([24, 40])


def test_other_rows_follow_the_line() -> None:
    # 5 rows lie between the measured 2 and 8: a's cut is 5 bytes a row, b's saved 3, the input 12 for 4 rows.
    costs = price(msgspec.structs.replace(PLAN, micro_batch_size=5), PROFILE, CLUSTER)
    assert costs.output_bytes == pytest.approx([25, 0])
    assert costs.saved_bytes == pytest.approx([50, 15 + 5])
    assert costs.input_bytes == pytest.approx([15, 25])
    assert costs.forward_s == pytest.approx([1 + 3.75, (1 + 1.25) / 4, (2 + 10) / 0.5])


def test_a_sharded_optimizer() -> None:
    whole = price(PLAN, PROFILE, CLUSTER)
    stages = (msgspec.structs.replace(PLAN.stages[0], sharded_optimizer=True), *PLAN.stages[1:])
    costs = price(msgspec.structs.replace(PLAN, stages=stages), PROFILE, CLUSTER)
    # Of stage 0's 100 bytes, 10 are shared with stage 1; of the other 90, each of two replicas steps 45.
    assert costs.optimizer_bytes.tolist() == [165, 165, 210]
    assert costs.gradient_bytes.tolist() == [50, 50, 35]
    assert costs.step_s[:2] == pytest.approx(0.55 * whole.step_s[:2])
    assert costs.step_s[2:].tolist() == whole.step_s[2:].tolist()
    # 90 bytes over a ring of two at 10 bytes/s: 9 s for the all-reduce, half of it before and half after the step.
    assert whole.reductions[0].ring.occupancy_s == pytest.approx(9.0)
    assert costs.reductions[0].ring == costs.gathers[0].ring == whole.reductions[0].ring.half
    assert costs.reductions[0].ring.occupancy_s == pytest.approx(4.5)
    assert costs.reductions[1:] == whole.reductions[1:]
    assert (whole.gathers, len(costs.gathers), costs.gathers[0].stages) == ((), 1, ())


def test_parameters_and_ties() -> None:
    costs = price(PLAN, PROFILE, CLUSTER)
    # b and c share 30 bytes inside stage 1: 60 + 40 - 30. The 10 bytes that a and c share are in both stages.
    assert costs.parameter_bytes.tolist() == [100, 70]
    assert (costs.tied_bytes, costs.tied_stages) == ((10.0,), ((0, 1),))
    assert costs.weight_bytes.tolist() == [100, 100, 70]
    assert costs.gradient_bytes.tolist() == [50, 50, 35]
    assert costs.optimizer_bytes.tolist() == [300, 300, 210]
    assert costs.static_bytes.tolist() == [450, 450, 315]
    assert costs.memory_limit.tolist() == [np.inf, np.inf, 1000]
    # What is shared across stages is reduced with the tie, not with the replicated stage: 2 x 1/2 x 90 and
    # 2 x 2/3 x 10 bytes from each member.
    grad, tie = costs.reductions
    assert (grad.is_tie, grad.number, grad.stages, grad.ring.devices) == (False, 0, (0,), (0, 1))
    assert grad.ring.sent_bytes == pytest.approx(90)
    assert (tie.is_tie, tie.number, tie.stages, tie.ring.devices) == (True, 0, (0, 1), (0, 1, 2))
    assert tie.ring.sent_bytes == pytest.approx(4 / 3 * 10)


def test_a_moved_backward() -> None:
    costs = price(plan_of((0, 1, SHARED, SHARED), (1, 3, on("d2"), on("d0"))), PROFILE, CLUSTER)
    assert costs.forward_device.tolist() == [0, 1, 2]
    assert costs.backward_device.tolist() == [0, 1, 0]
    assert costs.forward_s[2] == pytest.approx(36)
    assert costs.recompute_s[2] == pytest.approx(18)
    assert costs.input_grad_s[2] == pytest.approx(16)
    # d0 trains both stages, and has what they share once: 100 + 70 - 10; d2 has only a copy of the weights.
    assert costs.weight_bytes.tolist() == [160, 100, 70]
    assert costs.gradient_bytes.tolist() == [80, 50, 0]
    assert costs.optimizer_bytes.tolist() == [480, 300, 0]
    # d0 and d1 hold what is shared.
    assert [item.ring.devices for item in costs.reductions] == [(0, 1), (0, 1)]


def test_a_device_that_has_both_copies_holds_one() -> None:
    # The replicas swap between forward and backward: each device has the stage once, to train it.
    swapped = (Replica("d1", 0.75), Replica("d0", 0.25))
    costs = price(plan_of((0, 1, SHARED, swapped), (1, 3, on("d2"), on("d2"))), PROFILE, CLUSTER)
    assert costs.weight_bytes.tolist() == [100, 100, 70]
    assert costs.gradient_bytes.tolist() == [50, 50, 35]


def test_ties_on_one_device_need_no_reduction() -> None:
    costs = price(plan_of((0, 1, on("d0"), on("d0")), (1, 3, on("d0"), on("d0"))), PROFILE, CLUSTER)
    assert costs.reductions == ()
    assert costs.weight_bytes.tolist() == [160, 0, 0]


def test_a_tie_inside_one_stage_is_reduced_with_it() -> None:
    costs = price(plan_of((0, 3, on("d0", "d1"), on("d0", "d1"))), PROFILE, CLUSTER)
    # 100 + 60 + 40 - 30 - 10, all in one ring.
    assert costs.parameter_bytes.tolist() == [160]
    (only,) = costs.reductions
    assert only.ring.sent_bytes == pytest.approx(160)


def test_kinds_with_data_sheets() -> None:
    times = Times(kind="V100-16", micro_batch_size=1, forward_s=6.0, input_grad_s=3.0, weight_grad_s=3.0)
    sizes = Sizes(micro_batch_size=1, cut_bytes=0, saved_bytes=0)
    profile = Profile(
        name="p", micro_batch_size=1, units=(Unit(name="u", parameter_bytes=0, sizes=(sizes,), times=(times,)),)
    )
    devices = (Device(name="d0", host="h", kind="A100-40", speed=0.5),)
    cluster = Cluster(name="c", hosts=CLUSTER.hosts, devices=devices, between=CLUSTER.between)
    plan = plan_of(
        (0, 1, on("d0"), on("d0")),
        micro_batch_size=1,
        profile=Origin(name="p", digest=profile.digest),
        cluster=Origin(name="c", digest=cluster.digest),
    )
    costs = price(plan, profile, cluster)
    ratio = relative_speed("A100-40", "V100-16")
    assert ratio is not None
    assert ratio > 1
    assert costs.forward_s == pytest.approx([6.0 / ratio / 0.5])
    (note,) = costs.notes
    assert "A100-40 was not profiled" in note
    assert "V100-16" in note


def test_another_profile_or_cluster_is_refused() -> None:
    other_profile = msgspec.structs.replace(PROFILE, input_bytes=13)
    other_cluster = msgspec.structs.replace(CLUSTER, between=Wire(bandwidth=2.0))
    with pytest.raises(MismatchError, match="another profile: 'hand'"):
        price(PLAN, other_profile, CLUSTER)
    with pytest.raises(MismatchError, match="another cluster: 'hand'"):
        price(PLAN, PROFILE, other_cluster)
    costs = price(PLAN, other_profile, other_cluster, strict=False)
    assert costs.input_bytes == pytest.approx([26, 40])
    about_profile, about_cluster, _ = costs.notes
    assert "made for another profile" in about_profile
    assert PROFILE.digest in about_profile
    assert other_profile.digest in about_profile
    assert "made for another cluster" in about_cluster


@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_fit_is_refused_always(strict: bool) -> None:
    shorter = msgspec.structs.replace(PROFILE, units=PROFILE.units[:2], ties=())
    with pytest.raises(MismatchError, match="covers 3 layers, but the profile 'hand' has 2"):
        price(PLAN, shorter, CLUSTER, strict=strict)
    fewer = msgspec.structs.replace(CLUSTER, devices=CLUSTER.devices[:2])
    plan = msgspec.structs.replace(PLAN, cluster=Origin(name="x", digest=fewer.digest))
    with pytest.raises(MismatchError, match="uses device 'd2', which is not in the cluster"):
        price(plan, PROFILE, fewer, strict=strict)


@reaches(tied=0.01, tied_across=0.005)
@examples(400)
@given(cases())
def test_parts_add_up(case: Case) -> None:
    costs = case.costs
    tied = sum(tie.parameter_bytes * (len(tie.units) - 1) for tie in case.profile.ties)
    across = sum(size * (len(group) - 1) for size, group in zip(costs.tied_bytes, costs.tied_stages, strict=True))
    whole = sum(unit.parameter_bytes for unit in case.profile.units)
    assert costs.parameter_bytes.sum() - across == pytest.approx(whole - tied)
    reach("tied", tied)
    reach("tied_across", across)
    assert (costs.parameter_bytes >= 0).all()
    assert (costs.weight_bytes >= 0).all()
    assert _held(costs) == pytest.approx(costs.weight_bytes.tolist())


def _held(costs: Costs) -> list[float]:
    """Weights of every device, thing by thing: a stage's own part, and each shared part once."""
    held = [0.0] * costs.num_devices
    for device in range(costs.num_devices):
        here = set(costs.replica_stage[(costs.forward_device == device) | (costs.backward_device == device)].tolist())
        held[device] += sum(float(costs.parameter_bytes[stage]) for stage in here)
        for size, group in zip(costs.tied_bytes, costs.tied_stages, strict=True):
            held[device] -= size * max(0, len(here & set(group)) - 1)
    return held


def test_two_ties_cannot_share_more_than_there_is() -> None:
    # Two different tensors of 60 bytes cannot both be among the 100 bytes of unit a.
    ties = tuple(Tie(name=name, parameter_bytes=60, units=(0, 1)) for name in ("x", "y"))
    with pytest.raises(ValueError, match="larger than its parameters"):
        msgspec.structs.replace(PROFILE, ties=ties)
