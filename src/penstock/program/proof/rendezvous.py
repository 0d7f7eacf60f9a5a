"""Rendezvous: the program runs even if every device waits at every message until the other end has come to it.

That is the worst that can happen to a program on accelerators. A posted receive occupies its device until the message
arrives. If the host waits for the whole device before its next compute action, because the allocator is out of memory
or a layer synchronizes, or if all streams of the device share one hardware queue, everything behind the receive waits.
If no device waits in vain here, where all of them wait everywhere, then none does where they wait less: the action that
comes first of all that are not finished is never behind anything but finished ones.

Reductions, and actions in which replicas sync, are rendezvous of all their devices. The check uses the lowered program
and its transfers alone, and no times. Cost: O(actions).
"""

import numpy as np

from penstock.arrays import Int32s, Ints
from penstock.errors import DeadlockError
from penstock.plan.pricing import Costs
from penstock.program.actions import NONE
from penstock.program.dependencies import Dependencies, ReplicaSyncs, find_replica_syncs
from penstock.program.engine import execute, execute_plainly, is_compiled_used
from penstock.program.types import Program


def check_rendezvous(program: Program, costs: Costs, dependencies: Dependencies, synced: tuple[int, ...] = ()) -> None:
    """Reject a program in which devices can wait for each other in a cycle.

    Args:
        program: A complete lowered program whose sends and receives pair up.
        costs: The priced plan.
        dependencies: The transfers of the program.
        synced: The stages whose replicas sync.

    Raises:
        DeadlockError: It names the devices, what each waits at, and what it waits for.
    """
    meetings, num_devices = find_meetings(dependencies, find_replica_syncs(program, synced))
    if is_compiled_used(program.num_actions):
        from penstock.program.proof.rendezvous_kernel import meet

        counter: Ints = meet(program.offsets, meetings, num_devices)
    else:
        counter = meet_plainly(program.offsets, meetings, num_devices)
    stuck = np.flatnonzero(counter < program.offsets[1:])
    if not len(stuck):
        return
    run = execute if is_compiled_used(program.num_actions) else execute_plainly
    ends = (run(program, dependencies, costs, np.zeros(program.num_actions)).counter == program.offsets[1:]).all()
    waits = "; ".join(_follow(program, meetings, counter, int(stuck[0])))
    if synced or ends:
        raise DeadlockError(
            f"deadlock under device-wide waits: {waits}",
            hint="A device may wait for all that it has posted before it goes on; then these wait for each other. Both "
            "ends of every message must have it at the same place in one order of all actions, as `lower` makes it.",
        )
    raise DeadlockError(f"deadlock: {waits}", hint="Each device waits for the next one, and the last for the first.")


def find_meetings(dependencies: Dependencies, syncs: ReplicaSyncs) -> tuple[Int32s, Int32s]:
    """The rendezvous of a program.

    Returns:
        For each action its rendezvous (a transfer or a replica sync) or NONE, and for each rendezvous the number of
        devices that take part.
    """
    meetings = dependencies.transfer_of
    issued = meetings[meetings != NONE]
    num_devices = np.bincount(issued, minlength=dependencies.num_transfers).astype(np.int32)
    if len(syncs.size):
        is_synced = syncs.sync_of != NONE
        meetings = np.where(is_synced, syncs.sync_of + np.int32(dependencies.num_transfers), meetings)
        num_devices = np.concatenate([num_devices, syncs.size])
    return meetings, num_devices


def meet_plainly(offsets: Ints, meetings: Int32s, num_devices: Int32s) -> Ints:
    """The action at which each device stops if it waits at every rendezvous, without compiled code."""
    stops, meeting_of, num_absent = offsets[1:].tolist(), meetings.tolist(), num_devices.tolist()
    present: list[list[int]] = [[] for _ in num_absent]
    counter: list[int] = offsets[:-1].tolist()
    devices = list(range(len(counter)))
    while devices:
        device = devices.pop()
        action, stop = counter[device], stops[device]
        while action < stop:
            meeting = meeting_of[action]
            if meeting >= 0:
                num_absent[meeting] -= 1
                if num_absent[meeting]:
                    present[meeting].append(device)
                    break
                for other in present[meeting]:
                    counter[other] += 1
                    devices.append(other)
            action += 1
        counter[device] = action
    return np.array(counter, dtype=np.int64)


def _follow(program: Program, meetings: Int32s, counter: Ints, device: int) -> list[str]:
    """Follow devices that have not come to a rendezvous until one repeats; describe each of the cycle."""
    seen: list[int] = []
    waits: list[str] = []
    while device not in seen:
        seen.append(device)
        action = int(counter[device])
        others = np.flatnonzero(meetings == meetings[action])
        absent = int(next(other for other in others if other > counter[program.device_of[other]]))
        waits.append(f"{program.name(action)} waits for {program.name(absent)}")
        device = int(program.device_of[absent])
    return waits[seen.index(device) :]
