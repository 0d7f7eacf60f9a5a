"""Transfers of the plain simulator, and how those that pass together share interfaces."""

from dataclasses import dataclass, field

Place = tuple[int, int]
"""A device and the number of an action in its order."""

UNEVEN = 1e-3
"""By so much more than the next does each get, of those that pass together, that began before it."""


@dataclass(eq=False)
class Transfer:
    """A message or a reduction: who sets it going, over which links, for how long, and who waits for it."""

    turn: tuple[int, int, int]
    issued_by: list[Place]
    links: list[tuple[int, int]]
    num_bytes: float
    occupancy_s: float
    latency_s: float
    interfaces: list[tuple[int, bool, float]]
    """Hosts and directions, and the seconds that it would take of each if it had it alone."""
    waiting: list[Place]
    next_on_links: list["Transfer"] = field(default_factory=list)
    num_open: int = 0
    ready_s: float = 0.0
    start_s: float = 0.0
    arrived_s: float = 0.0
    left_s: float = 0.0
    """What is still to pass, in seconds at full speed."""
    speed: float = 0.0
    weight: float = 1.0

    @property
    def alone(self) -> float:
        """Bytes a second if it had the interfaces for itself."""
        return self.num_bytes / self.occupancy_s

    @property
    def needs(self) -> list[tuple[tuple[int, bool], float]]:
        """The part of each interface that it takes for every byte a second."""
        return [((host, outgoing), seconds / self.num_bytes) for host, outgoing, seconds in self.interfaces]


def share(passing: list[Transfer]) -> None:
    """The speeds of transfers that pass together: filled up alike, until their links or interfaces are full."""
    room: dict[tuple[int, bool], float] = {}
    rate = 0.0
    for place, transfer in enumerate(passing):
        transfer.weight = 1.0 + UNEVEN * (len(passing) - 1 - place)
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
