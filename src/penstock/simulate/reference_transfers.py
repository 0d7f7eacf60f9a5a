"""Transfers of the plain simulator, and how concurrent ones share interfaces."""

from dataclasses import dataclass, field

Place = tuple[int, int]
"""A device and the number of an action in its order."""

UNEVEN = 1e-3
"""The factor by which an earlier one of concurrent transfers gets more than the next."""


@dataclass(eq=False)
class Transfer:
    """A message or a reduction: the actions that issue it, its links, its duration, and its consumers."""

    turn: tuple[int, int, int]
    issued_by: list[Place]
    links: list[tuple[int, int]]
    num_bytes: float
    occupancy_s: float
    latency_s: float
    interfaces: list[tuple[int, bool, float]]
    """Hosts and directions, and the seconds that it would occupy each if it were alone."""
    waiting: list[Place]
    next_on_links: list["Transfer"] = field(default_factory=list)
    is_eager: bool = False
    """Whether it starts without its receiver."""
    num_open: int = 0
    ready_s: float = 0.0
    start_s: float = 0.0
    arrived_s: float = 0.0
    left_s: float = 0.0
    """The remaining transfer, in seconds at full speed."""
    speed: float = 0.0
    weight: float = 1.0

    @property
    def alone(self) -> float:
        """Bytes per second without other transfers."""
        return self.num_bytes / self.occupancy_s

    @property
    def needs(self) -> list[tuple[tuple[int, bool], float]]:
        """The part of each interface that one byte per second takes."""
        return [((host, outgoing), seconds / self.num_bytes) for host, outgoing, seconds in self.interfaces]


def share(passing: list[Transfer]) -> None:
    """The speeds of concurrent transfers: raised together until their links or interfaces are full."""
    room: dict[tuple[int, bool], float] = {}
    rate = 0.0
    for index, transfer in enumerate(passing):
        transfer.weight = 1.0 + UNEVEN * (len(passing) - 1 - index)
    still_open = list(passing)
    while still_open:
        need: dict[tuple[int, bool], float] = {}
        for transfer in still_open:
            for interface, part in transfer.needs:
                need[interface] = need.get(interface, 0.0) + part * transfer.weight
        most = {interface: room.get(interface, 1.0) / part for interface, part in need.items()}
        # It can only rise, but for rounding.
        rate = max(rate, min([*most.values(), *(transfer.alone / transfer.weight for transfer in still_open)]))
        full = [
            transfer
            for transfer in still_open
            if transfer.alone / transfer.weight <= rate
            or any(most[interface] <= rate for interface, _ in transfer.needs)
        ]
        for transfer in full:
            given = min(rate * transfer.weight, transfer.alone)
            transfer.speed = given / transfer.alone
            for interface, part in transfer.needs:
                room[interface] = room.get(interface, 1.0) - given * part
        still_open = [transfer for transfer in still_open if transfer not in full]
