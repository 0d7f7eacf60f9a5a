"""Restrictions of layers in the proof: the merged graph of replica syncs, and rules for stages."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DeadlockError
from penstock.plan.types import Origin
from penstock.profile.restrictions import Restriction
from penstock.program.actions import Kind
from penstock.program.dependencies import find_dependencies
from penstock.program.engine.replica_sync import count_waits_plainly, find_sync_graph
from penstock.program.engine.replica_sync_kernel import count_waits_compiled
from penstock.program.job_table import find_jobs
from penstock.program.lowering.lowering import lower
from penstock.program.lowering.message_places import place_messages
from penstock.program.proof.proof import Proof, prove
from penstock.program.proof.restrictions import find_blocked_sync, meets_restrictions
from penstock.schedules.registry import schedule
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases
from tests.support.thoroughness import examples


def restricted(case: Case, *restrictions: Restriction) -> Case:
    profile = msgspec.structs.replace(case.profile, restrictions=restrictions)
    origin = Origin(name=profile.name, digest=profile.digest)
    return replace(case, profile=profile, plan=msgspec.structs.replace(case.plan, profile=origin))


def can_run(proof: Proof, stages: Sequence[int]) -> bool:
    """Run the devices action by action, each sync only when all replicas of the stage are at it."""
    program, dependencies = proof.program, proof.dependencies
    counter, stops = program.offsets[:-1].tolist(), program.offsets[1:].tolist()
    needed: dict[int, list[int]] = {}
    for transfer in np.flatnonzero(dependencies.receive >= 0).tolist():
        begin, end = dependencies.consumers.begin[transfer : transfer + 2].tolist()
        for action in dependencies.consumers.values[begin:end].tolist():
            needed.setdefault(action, []).append(int(dependencies.send[transfer]))
    done: set[int] = set()

    def key(action: int) -> tuple[bool, int, int] | None:
        kind = Kind(int(program.kind[action]))
        if kind not in (Kind.F, Kind.I, Kind.B) or int(program.stage[action]) not in stages:
            return None
        return kind is not Kind.F, int(program.stage[action]), int(program.microbatch[action])

    sizes: dict[object, int] = {}
    for action in range(program.num_actions):
        if key(action) is not None:
            sizes[key(action)] = sizes.get(key(action), 0) + 1
    while True:
        heads = [at for at, stop in zip(counter, stops, strict=True) if at < stop]
        ready = [action for action in heads if all(item in done for item in needed.get(action, ()))]
        waiting = [key(action) for action in ready]
        runs = [action for action in ready if key(action) is None or waiting.count(key(action)) == sizes[key(action)]]
        if not runs:
            return not heads
        done |= set(runs)
        counter = [at + (at in done and at < stop) for at, stop in zip(counter, stops, strict=True)]


@reaches(synced=0.2, deadlock=0.02, split=0.05)
@examples(150)
@given(case=cases(max_microbatches=4), data=st.data())
def test_syncs_are_accepted_exactly_if_all_devices_can_run(case: Case, data: st.DataObject) -> None:
    """Orders of a random plan."""
    units = data.draw(st.sets(st.integers(0, case.profile.num_units - 1), min_size=1))
    costs = restricted(case, Restriction(rule="sync_replicas", units=tuple(sorted(units)))).costs
    program = schedule(costs, data.draw(st.sampled_from(["gpipe", "1f1b", "pe", "zb_h1", "interleaved", "auto"])))
    proof = prove(lower(program, case.costs), case.costs, within_memory=False)
    synced = sorted(costs.restrictions.synced)
    assert synced == sorted(
        number
        for number, stage in enumerate(case.plan.stages)
        if stage.num_replicas > 1 and any(stage.start <= unit < stage.stop for unit in units)
    )
    if synced:
        reach("synced")
    if (program.kind == Kind.I).any():
        reach("split")
    expected = can_run(proof, synced)
    if not expected:
        reach("deadlock")
    assert (find_blocked_sync(proof.program, proof.dependencies, synced) is None) == expected
    assert meets_restrictions(proof.program, costs, proof.dependencies) == expected
    graph = find_sync_graph(proof.program, proof.dependencies, synced)
    plain = count_waits_plainly(graph)
    assert np.array_equal(plain, count_waits_compiled(graph.begin, graph.after, graph.num_waits))
    # Where a sender holds a tensor for its receiver, only lowering that knows the syncs puts the send before them.
    placed = place_messages(program, costs)
    possible = meets_restrictions(placed, costs, find_dependencies(placed, costs, find_jobs(placed, costs)))
    assert possible or not expected
    if possible:
        prove(lower(program, costs), costs, within_memory=False)
    else:
        with pytest.raises(DeadlockError, match="deadlock in this replica sync"):
            prove(lower(program, costs), costs, within_memory=False)
