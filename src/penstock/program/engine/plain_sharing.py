"""Bandwidth sharing of transfers without compiled code: equal to `bandwidth_sharing_kernel.py` to the bit."""

import math

from penstock.program.dependencies import Dependencies

UNEVEN = 1e-3
"""The factor by which an earlier transfer gets more than the next."""


class Sharing:
    """The transfers that pass over shared interfaces at a moment, and their speeds.

    Attributes:
        passing: These transfers, in the order in which they began.
    """

    def __init__(self, dependencies: Dependencies, num_interfaces: int) -> None:
        self._num_bytes, self._occupancy_s = dependencies.num_bytes.tolist(), dependencies.occupancy_s.tolist()
        self._use_begin, self._uses = (values.tolist() for values in dependencies.interfaces)
        self._use_s = dependencies.interface_s.tolist()
        self._num_interfaces = num_interfaces
        self.passing: list[int] = []
        self._left_s: list[float] = []
        self._speed: list[float] = []
        self._moment_s = 0.0

    def first_end(self) -> float:
        """When the first of the transfers ends if nothing changes; infinite without any."""
        return min(self._ends(), default=math.inf)

    def begin(self, transfer: int, at_s: float) -> None:
        """A transfer begins."""
        self._pass_until(at_s)
        self.passing.append(transfer)
        self._left_s.append(self._occupancy_s[transfer])
        self._share()

    def end_first(self) -> tuple[int, float]:
        """End the transfer that ends first; return it and when it ends."""
        ends = self._ends()
        first = ends.index(min(ends))
        self._pass_until(ends[first])
        transfer = self.passing.pop(first)
        del self._left_s[first]
        self._share()
        return transfer, self._moment_s

    def _ends(self) -> list[float]:
        return [self._moment_s + left / speed for left, speed in zip(self._left_s, self._speed, strict=True)]

    def _pass_until(self, moment_s: float) -> None:
        passed_s = moment_s - self._moment_s
        self._left_s = [left - passed_s * speed for left, speed in zip(self._left_s, self._speed, strict=True)]
        self._moment_s = moment_s

    def _share(self) -> None:
        """The speeds of the transfers, as fractions of their speeds when alone: max-min fair."""
        num = len(self.passing)
        weights = [1.0 + UNEVEN * (num - 1 - index) for index in range(num)]
        alone = [self._num_bytes[transfer] / self._occupancy_s[transfer] for transfer in self.passing]
        uses = [
            [(self._uses[at], self._use_s[at] / self._num_bytes[transfer]) for at in self._entries(transfer)]
            for transfer in self.passing
        ]
        room = [1.0] * self._num_interfaces
        self._speed = [0.0] * num
        limited = list(range(num))
        rate = 0.0
        while limited:
            need = [0.0] * self._num_interfaces
            for index in limited:
                for use, share in uses[index]:
                    need[use] += share * weights[index]
            least = math.inf
            for index in limited:
                rates = (room[use] / need[use] for use, _ in uses[index])
                least = min(least, alone[index] / weights[index], *rates)
            # It can only rise, but for rounding.
            rate = max(rate, least)
            full = [
                index
                for index in limited
                if alone[index] / weights[index] <= rate or any(room[use] / need[use] <= rate for use, _ in uses[index])
            ]
            for index in full:
                speed = min(rate * weights[index], alone[index])
                self._speed[index] = speed / alone[index]
                for use, share in uses[index]:
                    room[use] -= speed * share
            limited = [index for index in limited if index not in full]

    def _entries(self, transfer: int) -> range:
        return range(self._use_begin[transfer], self._use_begin[transfer + 1])
