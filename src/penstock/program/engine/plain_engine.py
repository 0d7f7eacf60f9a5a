"""The engine without compiled code: equal to `engine_kernel.py` to the bit.

Programs that a rank lowers are small, and loading the compiled engine takes longer than running them here.
"""

import heapq
import math

from penstock.arrays import Floats, Int32s, Ints
from penstock.program.dependencies import Dependencies
from penstock.program.engine.plain_sharing import Sharing


class PlainEngine:
    """Runs a lowered program to its end, or to the point where it is stuck.

    Attributes:
        start: When each action starts.
        end: When each action ends.
        begun: When each transfer begins; nan if it never does.
        arrived: When each transfer arrives; nan if it never does.
        counter: The action at which each device stops.
    """

    def __init__(
        self, offsets: Ints, device_of: Int32s, dependencies: Dependencies, seconds: Floats, waits: Int32s
    ) -> None:
        self._stops, self._device_of = offsets[1:].tolist(), device_of.tolist()
        self._seconds, self._waits = seconds.tolist(), waits.tolist()
        self._dependencies = dependencies
        self._transfer_of, self._num_needs = dependencies.transfer_of.tolist(), dependencies.num_needs.tolist()
        self._occupancy_s, self._latency_s = dependencies.occupancy_s.tolist(), dependencies.latency_s.tolist()
        self._follower_begin, self._followers = (values.tolist() for values in dependencies.next_on_links)
        self._consumer_begin, self._consumers = (values.tolist() for values in dependencies.waiting)
        self._send, self._is_eager = dependencies.send.tolist(), dependencies.is_eager.tolist()
        self._interface_begin = dependencies.interfaces.begin.tolist()
        self.start, self.end = [0.0] * len(seconds), [0.0] * len(seconds)
        self.begun, self.arrived = ([math.nan] * len(self._num_needs) for _ in range(2))
        self.counter: list[int] = offsets[:-1].tolist()
        self._clock = [0.0] * len(self.counter)
        self._action_ready, self._transfer_ready = [0.0] * len(seconds), [0.0] * len(self._num_needs)
        self._devices, self._transfers = list(range(len(self.counter)))[::-1], list[int]()
        self._waiting: list[tuple[float, int]] = []
        """Transfers over shared interfaces that are ready."""

    def run(self, num_interfaces: int) -> None:
        """Run until nothing can happen any more; with so many directions of interfaces."""
        sharing = Sharing(self._dependencies, num_interfaces)
        while True:
            if self._transfers:
                self._begin(self._transfers.pop())
            elif self._devices:
                self._advance(self._devices.pop())
            elif self._waiting and self._waiting[0][0] < sharing.first_end():
                begin, transfer = heapq.heappop(self._waiting)
                self.begun[transfer] = begin
                sharing.begin(transfer, begin)
            elif sharing.passing:
                transfer, released = sharing.end_first()
                self._release(transfer, self.begun[transfer], released)
            else:
                return

    def _begin(self, transfer: int) -> None:
        """All needs of a transfer are met; over shared interfaces it begins when nothing earlier can happen."""
        begin, occupancy_s = self._transfer_ready[transfer], self._occupancy_s[transfer]
        is_shared = self._interface_begin[transfer] < self._interface_begin[transfer + 1]
        if is_shared and occupancy_s > 0.0:
            heapq.heappush(self._waiting, (begin, transfer))
        else:
            self._release(transfer, begin, begin + occupancy_s)

    def _advance(self, device: int) -> None:
        """Run the actions of a device up to the first that waits."""
        action, now, stop = self.counter[device], self._clock[device], self._stops[device]
        while action < stop and not self._waits[action]:
            transfer = self._transfer_of[action]
            self.start[action] = now = max(now, self._action_ready[action])
            if transfer < 0:
                now += self._seconds[action]
            elif action == self._send[transfer] or not self._is_eager[transfer]:
                self._meet(transfer, now)
            self.end[action] = now
            action += 1
        self.counter[device], self._clock[device] = action, now

    def _meet(self, transfer: int, at_s: float) -> None:
        self._transfer_ready[transfer] = max(self._transfer_ready[transfer], at_s)
        self._num_needs[transfer] -= 1
        if not self._num_needs[transfer]:
            self._transfers.append(transfer)

    def _release(self, transfer: int, begin: float, released: float) -> None:
        """End a transfer, and release what waits for it."""
        arrival = released + self._latency_s[transfer]
        self.begun[transfer], self.arrived[transfer] = begin, arrival
        for follower in self._followers[self._follower_begin[transfer] : self._follower_begin[transfer + 1]]:
            self._meet(follower, released)
        for action in self._consumers[self._consumer_begin[transfer] : self._consumer_begin[transfer + 1]]:
            self._action_ready[action] = max(self._action_ready[action], arrival)
            self._waits[action] -= 1
            device = self._device_of[action]
            if not self._waits[action] and self.counter[device] == action:
                self._devices.append(device)
