"""Compiled `find_order_plainly`: one order of all compute actions and messages. O(n log d) for d devices."""

import numba
import numpy as np

from penstock.arrays import Floats, Int32s, Ints
from penstock.program.dependencies import Dependencies, ReplicaSyncs
from penstock.program.engine.heap_kernel import pop, push


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def find_order(
    offsets: Ints, device_of: Int32s, dependencies: Dependencies, syncs: ReplicaSyncs, waits: Int32s, end_s: Floats
) -> Ints:
    """For each position the action that takes it; see `find_order_plainly`. `waits` is used up."""
    transfer_of, needs = dependencies.transfer_of, dependencies.num_needs.copy()
    followers, consumers = dependencies.next_on_links, dependencies.waiting
    sync_of, absent = syncs.sync_of, syncs.size.copy()
    with_syncs = len(sync_of) > 0
    num_devices, num_transfers = len(offsets) - 1, len(needs)
    order = np.full(len(end_s), -1, np.int64)
    counter, position = offsets[:-1].copy(), offsets[:-1].copy()
    # The actions that have issued each transfer, and the devices present at each sync, as linked lists.
    issued_last, issued_before = np.full(num_transfers, -1, np.int32), np.empty(len(end_s), np.int32)
    present_last, present_before = np.full(len(absent), -1, np.int64), np.empty(num_devices, np.int64)
    first_end = np.full(len(absent), np.inf)
    complete, num_taken, num_complete = np.empty(num_transfers, np.int32), 0, 0
    keys, ready, num_ready = np.empty(num_devices), np.empty(num_devices, np.int64), 0
    # Devices whose next action has its messages, and those that have to issue transfers up to their next action.
    waiting, num_waiting = np.empty(num_devices, np.int64), 0
    for device in range(num_devices):
        waiting[device] = num_devices - 1 - device
    num_waiting = num_devices
    while True:
        if num_waiting > 0:
            num_waiting -= 1
            device = waiting[num_waiting]
            action = counter[device]
            while action < offsets[device + 1] and transfer_of[action] >= 0:
                transfer = transfer_of[action]
                issued_before[action] = issued_last[transfer]
                issued_last[transfer] = action
                needs[transfer] -= 1
                if needs[transfer] == 0:
                    complete[num_complete] = transfer
                    num_complete += 1
                action += 1
            counter[device] = action
            if action == offsets[device + 1] or waits[action] > 0:
                continue
            sync = sync_of[action] if with_syncs else -1
            if sync < 0:
                num_ready = push(keys, ready, num_ready, end_s[action], device)
                continue
            present_before[device] = present_last[sync]
            present_last[sync] = device
            first_end[sync] = min(first_end[sync], end_s[action])
            absent[sync] -= 1
            if absent[sync] == 0:
                num_ready = push(keys, ready, num_ready, first_end[sync], device)
        elif num_taken < num_complete:
            transfer = complete[num_taken]
            num_taken += 1
            action = issued_last[transfer]
            while action >= 0:
                device = device_of[action]
                order[position[device]] = action
                position[device] += 1
                action = issued_before[action]
            for entry in range(followers.begin[transfer], followers.begin[transfer + 1]):
                follower = followers.values[entry]
                needs[follower] -= 1
                if needs[follower] == 0:
                    complete[num_complete] = follower
                    num_complete += 1
            for entry in range(consumers.begin[transfer], consumers.begin[transfer + 1]):
                action = consumers.values[entry]
                waits[action] -= 1
                device = device_of[action]
                if waits[action] == 0 and counter[device] == action:
                    waiting[num_waiting] = device
                    num_waiting += 1
        elif num_ready > 0:
            device = ready[0]
            num_ready = pop(keys, ready, num_ready)
            sync = sync_of[counter[device]] if with_syncs else -1
            while device >= 0:
                order[position[device]] = counter[device]
                position[device] += 1
                counter[device] += 1
                waiting[num_waiting] = device
                num_waiting += 1
                device = present_before[device] if sync >= 0 else -1
        else:
            return order
