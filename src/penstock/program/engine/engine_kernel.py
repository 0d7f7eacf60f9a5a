"""The compiled engine: runs a wired program to its end, or to the point where it is stuck.

Without shared interfaces every start is a maximum over things known earlier, so the order in which events are handled
does not matter and a stack serves. Transfers over shared interfaces pass at the same time, at speeds that change
whenever one of them begins or ends (`bandwidth_sharing_kernel.py`). Those that are ready wait in a heap until all that
can happen before them has been worked out: whatever is still open then depends on them, so the earliest beginning or
end of one is the next thing to happen. Cost: linear in actions and transfers, plus, for each that shares an interface,
a small multiple of how many pass at once.
"""

import numba
import numpy as np

from penstock.arrays import Floats, Int32s, Ints
from penstock.program.dependencies import Dependencies
from penstock.program.engine.bandwidth_sharing_kernel import share
from penstock.program.engine.heap_kernel import pop, push


@numba.njit(cache=True, nogil=True)  # type: ignore[misc,untyped-decorator,unused-ignore]
def run_engine(
    offsets: Ints, device_of: Int32s, dependencies: Dependencies, duration: Floats, waits: Int32s, num_interfaces: int
) -> tuple[Floats, Floats, Floats, Floats, Ints]:
    """Start and end of actions and of transfers, and how far each device came. `waits` is used up.

    Args:
        offsets: [device] the first action of each device, and the number of actions.
        device_of: [action] its device.
        dependencies: The transfers, and what waits for them.
        duration: [action] seconds.
        waits: [action] the number of transfers that it waits for.
        num_interfaces: The number of directions of interfaces.
    """
    transfer_of, needs = dependencies.transfer_of, dependencies.num_needs.copy()
    occupancy, latency = dependencies.occupancy_s, dependencies.latency_s
    followers, consumers, interfaces = dependencies.next_on_links, dependencies.waiting, dependencies.interfaces
    send, eager = dependencies.send, dependencies.is_eager
    num_devices = len(offsets) - 1
    num_actions, num_transfers = len(duration), len(occupancy)
    start, end = np.zeros(num_actions), np.zeros(num_actions)
    begun, arrived = np.full(num_transfers, np.nan), np.full(num_transfers, np.nan)
    action_ready, transfer_ready = np.zeros(num_actions), np.zeros(num_transfers)
    clock = np.zeros(num_devices)
    counter = offsets[:-1].copy()
    device_stack, transfer_stack = np.empty(num_devices, np.int64), np.empty(num_transfers, np.int64)
    heap_size = 0
    with_interfaces = len(interfaces.values) > 0
    heap_keys = np.empty(num_transfers if with_interfaces else 0)
    heap_items = np.empty(num_transfers if with_interfaces else 0, np.int64)
    passing = np.empty(num_transfers if with_interfaces else 0, np.int64)
    left, speed = np.empty(len(passing)), np.empty(len(passing))
    room, need = np.empty(num_interfaces), np.empty(num_interfaces)
    num_passing, moment = 0, 0.0
    num_ready_devices = num_devices
    for device in range(num_devices):
        device_stack[device] = num_devices - 1 - device
    num_ready_transfers = 0
    while True:
        if num_ready_transfers > 0:
            num_ready_transfers -= 1
            transfer = transfer_stack[num_ready_transfers]
            begin = transfer_ready[transfer]
            if interfaces.begin[transfer] < interfaces.begin[transfer + 1] and occupancy[transfer] > 0.0:
                heap_size = push(heap_keys, heap_items, heap_size, begin, transfer)
                continue
            released = begin + occupancy[transfer]
        elif num_ready_devices > 0:
            num_ready_devices -= 1
            device = device_stack[num_ready_devices]
            index, now = counter[device], clock[device]
            while index < offsets[device + 1]:
                if waits[index] > 0:
                    break
                now = max(now, action_ready[index])
                start[index] = now
                transfer = transfer_of[index]
                if transfer < 0:
                    now += duration[index]
                elif index == send[transfer] or not eager[transfer]:
                    transfer_ready[transfer] = max(transfer_ready[transfer], now)
                    needs[transfer] -= 1
                    if needs[transfer] == 0:
                        transfer_stack[num_ready_transfers] = transfer
                        num_ready_transfers += 1
                end[index] = now
                index += 1
            counter[device], clock[device] = index, now
            continue
        elif heap_size > 0 or num_passing > 0:
            before, first, first_end = moment, -1, np.inf
            for index in range(num_passing):
                end_s = before + left[index] / speed[index]
                if end_s < first_end:
                    first, first_end = index, end_s
            begins = heap_size > 0 and heap_keys[0] < first_end
            moment = heap_keys[0] if begins else first_end
            for index in range(num_passing):
                left[index] -= (moment - before) * speed[index]
            if begins:
                transfer = heap_items[0]
                heap_size = pop(heap_keys, heap_items, heap_size)
                begun[transfer] = moment
                passing[num_passing], left[num_passing] = transfer, occupancy[transfer]
                num_passing += 1
            else:
                transfer = passing[first]
                for index in range(first, num_passing - 1):
                    passing[index], left[index] = passing[index + 1], left[index + 1]
                num_passing -= 1
            share(num_passing, passing, speed, dependencies, room, need)
            if begins:
                continue
            begin, released = begun[transfer], moment
        else:
            break
        arrival = released + latency[transfer]
        begun[transfer], arrived[transfer] = begin, arrival
        for entry in range(followers.begin[transfer], followers.begin[transfer + 1]):
            follower = followers.values[entry]
            transfer_ready[follower] = max(transfer_ready[follower], released)
            needs[follower] -= 1
            if needs[follower] == 0:
                transfer_stack[num_ready_transfers] = follower
                num_ready_transfers += 1
        for entry in range(consumers.begin[transfer], consumers.begin[transfer + 1]):
            action = consumers.values[entry]
            action_ready[action] = max(action_ready[action], arrival)
            waits[action] -= 1
            device = device_of[action]
            if waits[action] == 0 and counter[device] == action:
                device_stack[num_ready_devices] = device
                num_ready_devices += 1
    return start, end, begun, arrived, counter
