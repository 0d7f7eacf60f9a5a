"""Runtime overheads, added to the passes of a plan: per pass, message, byte, micro-batch and iteration.

On a CPU the cores that compute also copy messages. The overhead of a message is part of the pass that produces or
consumes it. With a remote backward, the forward's device also copies the returned parameters once per iteration, which
is counted as a part of every forward.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock.arrays import Floats, Ints
from penstock.plan.pricing.costs import Costs
from penstock.plan.pricing.flows import ACTIVATION, GRADIENT, PARAMETERS, SAVED
from penstock.plan.pricing.unit_seconds import UnitClock


def with_overheads(costs: Costs, clock: UnitClock) -> Costs:
    """The costs including runtime overheads; unchanged where the profile has none."""
    if not clock.has_overheads:
        return costs
    spent = [clock.overhead(device) for device in range(costs.num_devices)]
    job_s = np.array([item.job_s for item in spent])
    message_s = np.array([item.message_s for item in spent])
    byte_s = np.array([item.byte_s for item in spent])
    backward_s = costs.input_grad_s + costs.weight_grad_s
    apart_s = np.array([item.split_ratio for item in spent])[costs.backward_device] * backward_s
    # Saved tensors are gathered by the sender and placed into a graph by the receiver; recomputing needs neither.
    moved = (costs.forward_device != costs.backward_device) & ~costs.recompute[costs.replica_stage]
    remote_ratio = np.array([item.remote_ratio for item in spent])
    here, there = job_s[costs.forward_device], job_s[costs.backward_device]
    forward_s = costs.forward_s * (1 + moved * remote_ratio[costs.forward_device]) + here
    input_grad_s = costs.input_grad_s + moved * remote_ratio[costs.backward_device] * backward_s + there
    step_s = costs.step_s.copy()
    flows = costs.flows
    sent = message_s[flows.source] + byte_s[flows.source] * flows.num_bytes
    received_byte_s = np.array([item.received_byte_s for item in spent])
    received = np.array([item.received_message_s for item in spent])[flows.target]
    received = received + received_byte_s[flows.target] * flows.num_bytes
    makers = {ACTIVATION: forward_s, GRADIENT: input_grad_s, SAVED: forward_s, PARAMETERS: step_s}
    takers = {ACTIVATION: forward_s, GRADIENT: input_grad_s, SAVED: input_grad_s}
    for what, made in makers.items():
        chosen = flows.what == what
        np.add.at(made, flows.source_replica[chosen], sent[chosen])
        if what in takers:
            np.add.at(takers[what], flows.target_replica[chosen], received[chosen])
    fresh = flows.what == PARAMETERS
    # Without a figure for received bytes, they are copied like sent ones.
    copied = received + np.where(received_byte_s > 0, 0.0, byte_s)[flows.target] * flows.num_bytes
    np.add.at(forward_s, flows.target_replica[fresh], copied[fresh] / costs.num_microbatches)
    _add_constants(forward_s, costs.forward_device, [item.each_microbatch_s for item in spent])
    _add_constants(step_s, costs.backward_device, [item.each_iteration_s for item in spent])
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
    # The flows do not depend on seconds, and finding them is the expensive part: keep them.
    found.__dict__["flows"] = flows
    return found


def _add_constants(seconds: Floats, device: Ints, constant_s: Sequence[float]) -> None:
    """Add the constant of each device to the seconds of its first stage."""
    if not any(constant_s):
        return
    _, first = np.unique(device, return_index=True)
    seconds[first] += np.array(constant_s)[device[first]]
