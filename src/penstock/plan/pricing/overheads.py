"""What devices spend around their units, added to the jobs of a plan: for every job, for every message, for every byte.

On a processor the same cores that compute also copy what is sent, and a job that takes no longer than what must be done
around it is not worth having. A message's price is part of the job that makes what is in it or needs it. Fresh
parameters are copied once more where the forward is: once an iteration, counted here as a part of every forward.
"""

from dataclasses import replace

import numpy as np

from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, PARAMETERS, SAVED
from penstock.plan.pricing.unit_seconds import UnitClock


def with_overheads(costs: Costs, clock: UnitClock) -> Costs:
    """The costs with what devices spend around their units; the same where nothing of it is known."""
    if not clock.has_overheads:
        return costs
    spent = [clock.overhead(device) for device in range(costs.num_devices)]
    job_s = np.array([item.job_s for item in spent])
    message_s = np.array([item.message_s for item in spent])
    byte_s = np.array([item.byte_s for item in spent])
    backward_s = costs.input_grad_s + costs.weight_grad_s
    apart_s = np.array([item.split_ratio for item in spent])[costs.backward_device] * backward_s
    # What is saved is gathered on the one side and put into a graph on the other; a forward that runs again needs none.
    moved = (costs.forward_device != costs.backward_device) & ~costs.recompute[costs.replica_stage]
    moved_ratio = np.array([item.moved_ratio for item in spent])
    here, there = job_s[costs.forward_device], job_s[costs.backward_device]
    forward_s = costs.forward_s * (1 + moved * moved_ratio[costs.forward_device]) + here
    input_grad_s = costs.input_grad_s + moved * moved_ratio[costs.backward_device] * backward_s + there
    step_s = costs.step_s.copy()
    flows = costs.flows
    sent = message_s[flows.source] + byte_s[flows.source] * flows.num_bytes
    received = message_s[flows.target]
    makers = {ACTIVATION: forward_s, GRADIENT: input_grad_s, SAVED: forward_s, PARAMETERS: step_s}
    takers = {ACTIVATION: forward_s, GRADIENT: input_grad_s, SAVED: input_grad_s}
    for what, made in makers.items():
        chosen = flows.what == what
        np.add.at(made, flows.source_replica[chosen], sent[chosen])
        if what in takers:
            np.add.at(takers[what], flows.target_replica[chosen], received[chosen])
    fresh = flows.what == PARAMETERS
    copied = received + byte_s[flows.target] * flows.num_bytes
    np.add.at(forward_s, flows.target_replica[fresh], copied[fresh] / costs.num_microbatches)
    found = replace(
        costs,
        forward_s=forward_s,
        recompute_s=costs.recompute_s + there,
        input_grad_s=input_grad_s,
        weight_grad_s=costs.weight_grad_s + apart_s + there,
        joined_s=apart_s + there,
        step_s=step_s,
        copies_sent=byte_s > 0,
    )
    # Seconds change nothing about what moves; to find it takes longer than all of this.
    found.__dict__["flows"] = flows
    return found
