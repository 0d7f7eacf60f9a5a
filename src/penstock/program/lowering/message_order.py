"""One order of all compute actions and messages, which is the order of every device's program.

Devices run their actions in this order, so both ends of a message, and all devices of a reduction, have it at the same
place among all other actions. Whatever a device waits for before it goes on, then, it waits only for actions that come
earlier in the order: a host may wait for all queued work of its device anywhere, and all streams of a device may share
one hardware queue, and no cycle of waiting devices can arise.

The order is that of the simulated ends of the compute actions. A message follows as soon as both ends have it in the
program that `place_messages` made, and so at the time at which it can start there. On either end it then precedes
the first compute action that ends later. So it starts no later than before, and all simulated times stay the same.
(Replica syncs are an exception: their actions on all replicas take one place in the order, and messages of the first
replica wait for the last one.)

A receive is never posted earlier than `place_messages` has it. A send follows its producer directly, unless the
receiver has no buffer for the message yet.
"""

import heapq
from collections import deque

import numpy as np

from penstock.arrays import Floats, Int32s, Ints
from penstock.plan.pricing import Costs
from penstock.program.actions import NONE
from penstock.program.dependencies import Dependencies, ReplicaSyncs, find_dependencies, find_replica_syncs
from penstock.program.engine import count_transfers_needed, execute, execute_plainly, is_compiled_used
from penstock.program.job_table import find_jobs
from penstock.program.seconds import durations
from penstock.program.types import Program, program_from_arrays


def order_messages(program: Program, costs: Costs) -> Program:
    """Move the messages and reductions of a lowered program into one order over all devices.

    Args:
        program: A lowered program.
        costs: The priced plan of the program.

    Returns:
        The same actions, those that compute in the same order. A program that cannot run is returned unchanged.
    """
    jobs = find_jobs(program, costs)
    dependencies = find_dependencies(program, costs, jobs)
    run = execute if is_compiled_used(program.num_actions) else execute_plainly
    seconds = durations(program, costs, jobs.replica)
    return order_by_ends(program, costs, dependencies, run(program, dependencies, costs, seconds).end)


def order_by_ends(program: Program, costs: Costs, dependencies: Dependencies, end_s: Floats) -> Program:
    """The same, with the transfers of the program and the ends of its actions at hand."""
    syncs = find_replica_syncs(program, costs.restrictions.synced)
    waits = count_transfers_needed(program, dependencies)
    if is_compiled_used(program.num_actions):
        from penstock.program.lowering.message_order_kernel import find_order

        order: Ints = find_order(program.offsets, program.device_of, dependencies, syncs, waits, end_s)
    else:
        order = find_order_plainly(program.offsets, program.device_of, dependencies, syncs, waits, end_s)
    if len(order) and order.min() == NONE:
        return program
    counts = np.diff(program.offsets)
    columns = (program.kind, program.stage, program.microbatch, program.peer)
    return program_from_arrays(program.plan, program.devices, counts, *(column[order] for column in columns))


def holds_sends(dependencies: Dependencies, end_s: Floats) -> bool:
    """Whether a tensor to be sent may have to wait on its device, as the receiver has no buffer for it yet.

    Args:
        dependencies: The transfers of a program that `place_messages` made.
        end_s: The ends of its actions; of messages, when they are issued.
    """
    is_message = dependencies.receive != NONE
    send, receive = dependencies.send[is_message], dependencies.receive[is_message]
    return bool((end_s[receive] > end_s[send]).any())


def find_order_plainly(
    offsets: Ints, device_of: Int32s, dependencies: Dependencies, syncs: ReplicaSyncs, waits: Int32s, end_s: Floats
) -> Ints:
    """For each position the action that takes it, without compiled code; NONE from where devices wait in a cycle.

    Args:
        offsets: [device] the first action of each device, and the number of actions.
        device_of: [action] its device.
        dependencies: The transfers, and what waits for them.
        syncs: The replica syncs.
        waits: [action] the number of transfers that it waits for.
        end_s: [action] when it ends.
    """
    stops, devices, ends, transfers = (
        values.tolist() for values in (offsets[1:], device_of, end_s, dependencies.transfer_of)
    )
    follower_begin, followers = (values.tolist() for values in dependencies.next_on_links)
    consumer_begin, consumers = (values.tolist() for values in dependencies.waiting)
    num_waits = waits.tolist()
    num_needs = dependencies.num_needs.tolist()
    sync_of, num_absent = syncs.sync_of.tolist(), syncs.size.tolist()
    present: list[list[int]] = [[] for _ in num_absent]
    issued_by: list[list[int]] = [[] for _ in num_needs]
    counter, position = offsets[:-1].tolist(), offsets[:-1].tolist()
    order = [NONE] * len(ends)
    ready: list[tuple[float, int]] = []
    complete: deque[int] = deque()

    def advance(device: int) -> None:
        """Issue transfers up to the next compute action."""
        action = counter[device]
        while action < stops[device] and transfers[action] != NONE:
            transfer = transfers[action]
            issued_by[transfer].append(action)
            num_needs[transfer] -= 1
            if not num_needs[transfer]:
                complete.append(transfer)
            action += 1
        counter[device] = action
        if action < stops[device] and not num_waits[action]:
            await_replicas(device)

    def await_replicas(device: int) -> None:
        """The device's next action has its messages. With a replica sync, it waits for the other replicas."""
        action = counter[device]
        sync = sync_of[action] if sync_of else NONE
        if sync == NONE:
            heapq.heappush(ready, (ends[action], device))
            return
        present[sync].append(device)
        num_absent[sync] -= 1
        if not num_absent[sync]:
            heapq.heappush(ready, (min(ends[counter[other]] for other in present[sync]), device))

    def append(action: int) -> None:
        device = devices[action]
        order[position[device]] = action
        position[device] += 1

    for device in range(len(stops)):
        advance(device)
    while complete or ready:
        if complete:
            transfer = complete.popleft()
            for action in issued_by[transfer]:
                append(action)
            for follower in followers[follower_begin[transfer] : follower_begin[transfer + 1]]:
                num_needs[follower] -= 1
                if not num_needs[follower]:
                    complete.append(follower)
            for action in consumers[consumer_begin[transfer] : consumer_begin[transfer + 1]]:
                num_waits[action] -= 1
                if not num_waits[action] and counter[devices[action]] == action:
                    await_replicas(devices[action])
        else:
            device = heapq.heappop(ready)[1]
            sync = sync_of[counter[device]] if sync_of else NONE
            for member in present[sync] if sync != NONE else (device,):
                append(counter[member])
                counter[member] += 1
                advance(member)
    return np.array(order, dtype=np.int64)
