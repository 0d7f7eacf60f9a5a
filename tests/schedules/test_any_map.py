"""Every schedule, for any plan that can be said: its program is proved, and each device does its jobs and no others."""

from collections import Counter

import pytest
from hypothesis import given

from penstock.plan.pricing.costs import Costs
from penstock.program.actions import Action, Kind
from penstock.program.lowering.lowering import lower
from penstock.program.proof.proof import prove
from penstock.program.types import Program
from penstock.schedules.registry import find_schedule, schedule
from tests.support.reach import reach, reaches
from tests.support.strategies import NAMED_SCHEDULES, Case, cases, reach_features
from tests.support.thoroughness import examples

Job = tuple[str, str, int, int]
"""Device, kind, stage, micro-batch."""


def jobs_of(case: Case) -> Counter[Job]:
    """What there is to do, said by the plan alone; a backward counts as its two parts."""
    found: Counter[Job] = Counter()
    for number, stage in enumerate(case.plan.stages):
        for microbatch in range(case.plan.num_microbatches):
            for replica in stage.forward:
                found[replica.device, "F", number, microbatch] += 1
            for replica in stage.backward:
                for kind in "RIW" if stage.recompute else "IW":
                    found[replica.device, kind, number, microbatch] += 1
    return found


def jobs_in(program: Program) -> Counter[Job]:
    found: Counter[Job] = Counter()
    for device in program.devices:
        for action in program.actions(device):
            if action.kind < Kind.STEP:
                for kind in "IW" if action.kind == Kind.B else action.kind.name:
                    found[device, kind, action.stage, action.microbatch] += 1
    return found


@reaches(several_stages=0.1, replicated=0.05, remote=0.02, recompute=0.05, split=0.05, tied=0.02, shared=0.01)
@examples(150)
@given(cases(max_microbatches=9))
def test_any_case_is_proved(case: Case) -> None:
    costs = case.costs
    expected = jobs_of(case)
    for name in NAMED_SCHEDULES:
        program = schedule(costs, name)
        assert not program.is_lowered
        assert jobs_in(program) == expected
        lowered = lower(program, costs)
        prove(lowered, costs)
        assert jobs_in(lowered) == expected
    reach_features(case)


def compute(costs: Costs, name: str, device: str) -> list[Action]:
    return list(schedule(costs, name).actions(device))


@reaches(split=0.3, fused=0.1, joined=0.01)
@examples(240)
@given(cases())
def test_backwards_are_split_only_where_asked(case: Case) -> None:
    costs = case.costs
    for name in NAMED_SCHEDULES:
        actions = [action for device in costs.plan.devices for action in compute(costs, name, device)]
        splits = name.startswith(("zb_", "v_"))
        parts = case.plan.split_backward or splits
        if splits and costs.joined_s.any():
            # Where it costs something to part a backward, it may be whole where nobody waits for I.
            actions = [action for action in actions if action.stage > 0]
            reach("joined", actions)
        kinds = {action.kind for action in actions}
        assert (Kind.B in kinds) == (not parts)
        reach("split" if parts else "fused", actions)
        assert ({Kind.I, Kind.W} <= kinds) == (parts and bool(actions))


@reaches(recompute=0.1)
@examples(60)
@given(cases())
def test_recomputation_stands_right_before_its_backward_unless_weights_fill_a_wait(case: Case) -> None:
    costs = case.costs
    for name in NAMED_SCHEDULES:
        for device in costs.plan.devices:
            order = [action for action in compute(costs, name, device) if action.kind != Kind.W]
            for action, following in zip(order, order[1:] + order[:1], strict=True):
                if action.kind == Kind.R:
                    reach("recompute")
                    assert following.kind in (Kind.I, Kind.B)
                    assert (following.stage, following.microbatch) == (action.stage, action.microbatch)


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown schedule 'zb'"):
        find_schedule("zb")


@reaches(several_stages=0.05, several_devices=0.05, orders=0.05)
@examples(40)
@given(cases())
def test_the_same_problem_gives_the_same_program(case: Case) -> None:
    first, second = case.costs, case.costs
    programs = [schedule(first, name) for name in NAMED_SCHEDULES]
    for name, program in zip(NAMED_SCHEDULES, programs, strict=True):
        assert program.same_actions(schedule(second, name))
    reach_features(case)
    reach("orders", not all(program.same_actions(programs[0]) for program in programs))
