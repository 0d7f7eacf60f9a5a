"""Edges between passes: by hand, and against the transfers and needs of programs; the placement of a plan."""

import numpy as np
from hypothesis import given

from penstock.plan.types import on
from penstock.program.actions import NONE
from penstock.program.dependencies.needs import find_needs
from penstock.program.dependencies.passes import find_pass_edges
from penstock.program.job_table import find_jobs
from penstock.program.placement import find_placement
from penstock.simulate.evaluation import evaluate_costs
from tests.support.reach import reach, reaches
from tests.support.strategies import Case, cases, two_stages
from tests.support.thoroughness import examples


def test_a_remote_backward_by_hand() -> None:
    remote = ((on("d0"), on("d1")), (on("d1"), on("d1")))
    edges = find_pass_edges(two_stages(num_microbatches=1, groups=remote).costs)
    # Passes: F 0 and 1, R 2 and 3, I 4 and 5, W 6 and 7. Flows: activations, saved tensors, parameters.
    assert list(zip(*(values.tolist() for values in edges), strict=True)) == [
        (0, 1, 0),
        (0, 4, 1),
        (5, 4, NONE),
        (1, 5, NONE),
        (4, 6, NONE),
        (5, 7, NONE),
    ]
    assert edges.of_flows(np.array([2.0, 3.0, 5.0]), 1.0).tolist() == [2.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    edges = find_pass_edges(two_stages(num_microbatches=1, groups=remote, recompute=True).costs)
    assert {(0, 2, 1), (1, 3, NONE), (2, 4, NONE), (3, 5, NONE)} < set(
        zip(*(values.tolist() for values in edges), strict=True)
    )


@reaches(sent=0.2, local=0.2, remote=0.05, recomputed=0.05)
@examples(60)
@given(cases())
def test_programs_need_what_the_passes_need(case: Case) -> None:
    """Every edge stands in the program's graph once per micro-batch, directly or over a send."""
    evaluation = evaluate_costs(case.costs)
    program, jobs = evaluation.program, evaluation.proof.jobs
    graph = find_needs(program, evaluation.timeline.cause)
    needs = [
        set(graph.needs[graph.begin[action] : graph.begin[action + 1]].tolist())
        for action in range(program.num_actions)
    ]
    edges = find_pass_edges(case.costs)
    num_needs = 0
    for source, target, flow in zip(*(values.tolist() for values in edges), strict=True):
        for earlier, later in zip(jobs.passes[source].tolist(), jobs.passes[target].tolist(), strict=True):
            if flow == NONE:
                assert earlier == later or earlier in needs[later]
            else:
                assert [send for send in needs[later] if earlier in needs[send]]
            num_needs += earlier != later
    assert num_needs == sum(len(needs[later]) for later in np.unique(jobs.passes[jobs.passes != NONE]).tolist())
    reach("sent", (edges.flow != NONE).any())
    reach("local", len(case.costs.flows.local_forward) > 0)
    reach("remote", (case.costs.forward_device != case.costs.backward_device).any())
    reach("recomputed", case.costs.recompute.any())


@reaches(replicated=0.1, remote=0.05)
@examples(60)
@given(cases())
def test_a_plan_places_its_replicas_as_its_costs_do(case: Case) -> None:
    costs = case.costs
    program = evaluate_costs(costs).program
    placement = find_placement(program)
    for name in ("recompute", "replica_stage", "forward_device", "backward_device"):
        assert np.array_equal(getattr(placement, name), getattr(costs, name)), name
    assert np.array_equal(placement.local_forward, costs.flows.local_forward)
    assert np.array_equal(placement.local_backward, costs.flows.local_backward)
    for one, other in zip(find_jobs(program, placement), find_jobs(program, costs), strict=True):
        assert np.array_equal(one, other)
    reach("replicated", costs.num_replicas > costs.plan.num_stages)
    reach("remote", (costs.forward_device != costs.backward_device).any())
