"""No device waits for another in a cycle, whatever it waits for: the check, beside devices with hardware queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeadlockError
from penstock.plan.pricing.costs import Costs
from penstock.program.dependencies import find_dependencies, find_replica_syncs
from penstock.program.job_table import find_jobs
from penstock.program.lowering.lowering import lower
from penstock.program.lowering.message_places import place_messages
from penstock.program.proof.proof import prove
from penstock.program.proof.rendezvous import check_rendezvous, find_meetings, meet_plainly
from penstock.program.proof.rendezvous_kernel import meet
from penstock.program.types import Program, program_from_actions
from penstock.schedules.registry import schedule
from tests.support.hardware_queues import everywhere, nowhere, runs_to_the_end
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, reach_features, two_stages
from tests.support.thoroughness import examples


def _is_safe(program: Program, costs: Costs) -> bool:
    try:
        check_rendezvous(program, costs, find_dependencies(program, costs, find_jobs(program, costs)))
    except DeadlockError:
        return False
    return True


@pytest.mark.parametrize("schedule_name", ["gpipe", "1f1b", "zb_h1", "interleaved"])
def test_receives_posted_two_micro_batches_ahead_hang(schedule_name: str) -> None:
    """As lowering posted them before it knew of device-wide waits."""
    case = two_stages(num_microbatches=4, schedule_name=schedule_name)
    costs = case.costs
    program = schedule(costs)
    ahead, lowered = place_messages(program, costs), lower(program, costs)
    with pytest.raises(
        DeadlockError, match="deadlock under device-wide waits: 0RECV_B0@d1 on d0 waits for 1SEND_B0@d0 on d1; "
    ):
        prove(ahead, costs)
    assert not runs_to_the_end(ahead, costs, 8, everywhere)
    assert not runs_to_the_end(ahead, costs, 1, nowhere)
    assert runs_to_the_end(ahead, costs, 8, nowhere)
    prove(lowered, costs)
    for num_queues in (1, 2, 8):
        assert runs_to_the_end(lowered, costs, num_queues, everywhere)
        assert runs_to_the_end(lowered, costs, num_queues, nowhere)


@reaches(several_devices=0.5, replicated=0.1, remote=0.1, recompute=0.1, tied=0.02)
@examples(60)
@given(cases(max_microbatches=4), st.sampled_from([1, 2, 3, 8]), st.randoms(use_true_random=False))
def test_lowered_programs_run_whatever_devices_wait_for(case: Case, num_queues: int, draw: object) -> None:
    costs = case.costs
    program = case.lowered(costs)
    chosen = {action for action in range(program.num_actions) if draw.random() < 0.5}  # type: ignore[attr-defined]
    assert runs_to_the_end(program, costs, num_queues, chosen.__contains__)
    assert runs_to_the_end(program, costs, num_queues, everywhere)
    reach_features(case)


@reaches(safe=0.2, unsafe=0.2, only_waits=0.05)
@examples(100)
@given(cases(max_microbatches=4), st.booleans(), st.randoms(use_true_random=False))
def test_the_check_is_a_device_with_one_queue(case: Case, is_ordered: bool, draw: object) -> None:
    """And what passes it runs with any number of queues and waits."""
    costs = case.costs
    program = lower(schedule(costs), costs) if is_ordered else place_messages(schedule(costs), costs)
    is_safe = _is_safe(program, costs)
    reach("safe" if is_safe else "unsafe")
    assert runs_to_the_end(program, costs, 1, nowhere) == is_safe
    if is_safe:
        assert runs_to_the_end(program, costs, 8, everywhere)
    else:
        reach("only_waits", runs_to_the_end(program, costs, 8, nowhere))


@reaches(stuck=0.2, ends=0.2, synced=0.1)
@examples(150)
@given(cases(), st.booleans(), st.sets(st.integers(0, 5)))
def test_the_compiled_check_is_the_plain_one(case: Case, is_ordered: bool, stages: set[int]) -> None:
    costs = case.costs
    program = lower(schedule(costs), costs) if is_ordered else place_messages(schedule(costs), costs)
    dependencies = find_dependencies(program, costs, find_jobs(program, costs))
    syncs = find_replica_syncs(program, stages)
    meetings = find_meetings(dependencies, syncs)
    plain = meet_plainly(program.offsets, *meetings)
    assert plain.tolist() == meet(program.offsets, *meetings).tolist()
    reach("ends" if (plain == program.offsets[1:]).all() else "stuck")
    reach("synced", len(syncs.size))


def test_a_deadlock_without_any_waits_is_called_that() -> None:
    case = two_stages(num_microbatches=2)
    costs = case.costs
    program = lower(schedule(costs), costs)
    rows = [list(program.actions(name)) for name in program.devices]
    texts = [
        "0F0 0SEND_F0@d1 0RECV_B0@d1 0B0 0F1 0SEND_F1@d1 0RECV_B1@d1 0B1 0STEP",
        "1RECV_F0@d0 1RECV_F1@d0 1F0 1F1 1B0 1SEND_B0@d0 1B1 1SEND_B1@d0 1STEP",
    ]
    by_text = [{str(action): action for action in row} for row in rows]
    orders = [[names[text] for text in row.split()] for names, row in zip(by_text, texts, strict=True)]
    broken = program_from_actions(program.plan, program.devices, orders)
    with pytest.raises(DeadlockError, match="deadlock: 0RECV_B0@d1 on d0 waits for 1SEND_B0@d0 on d1; 1R"):
        prove(broken, costs)
