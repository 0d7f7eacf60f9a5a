"""The waits of a timeline, grouped by device and by what the device waited for."""

import msgspec

from penstock.printable_text import escape_text
from penstock.program import NONE, Kind, Program
from penstock.timeline import Timeline, Wait, blocked_at, waits
from penstock.units import show_seconds

_AWAITED = {
    Kind.SEND_F: "activations",
    Kind.SEND_B: "gradients",
    Kind.SEND_S: "saved tensors",
    Kind.SEND_P: "parameters",
    Kind.REDUCE_GRAD: "the all-reduce of its group",
    Kind.REDUCE_TIE: "the all-reduce of shared parameters",
    Kind.GATHER_P: "the all-gather of its group",
}


class WaitGroup(msgspec.Struct, frozen=True):
    """The waits of one device for one kind of transfer from one device."""

    device: str
    awaited: str
    """What the device waited for; empty where the program has no cause for the wait."""
    source: str
    """The device that sent it; empty for all-reduces."""
    waited_s: float
    transfer_s: float
    """The part of the wait during which the transfer was under way. The rest is for what came before the transfer."""
    num_waits: int
    longest_before: str
    """The action before the longest of these waits."""

    @property
    def sentence(self) -> str:
        """The group as a sentence.

        >>> WaitGroup("d2", "gradients", "d3", 0.0312, 0.0031, 8, "2B7").sentence
        'd2 waited 31.2 ms for gradients from d3 (transfer 3.10 ms), 8x, longest before 2B7'
        """
        reason = " without a cause in the program"
        if self.awaited:
            source = f" from {escape_text(self.source)}" if self.source else ""
            reason = f" for {self.awaited}{source} (transfer {show_seconds(self.transfer_s)})"
        times = f"{self.num_waits}x, longest" if self.num_waits > 1 else "once,"
        waited = f"{escape_text(self.device)} waited {show_seconds(self.waited_s)}"
        return f"{waited}{reason}, {times} before {self.longest_before}"


def group_waits(timeline: Timeline) -> list[WaitGroup]:
    """Group the waits of a timeline by device and by what the device waited for.

    Args:
        timeline: A simulated or measured timeline.

    Returns:
        The groups, the longest total first.
    """
    by_reason: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in waits(timeline):
        by_reason.setdefault((wait.device, *_reason(timeline.program, wait)), []).append(wait)
    groups = [_group(timeline.program, key, entries) for key, entries in by_reason.items()]
    # Sorting is stable: equal sums keep the order of the devices.
    return sorted(groups, key=lambda group: -group.waited_s)


def _reason(program: Program, wait: Wait) -> tuple[str, str]:
    if wait.cause == NONE:
        return "", ""
    kind = Kind(int(program.kind[wait.cause]))
    if kind not in _AWAITED:
        return "", ""
    source = program.devices[int(program.device_of[wait.cause])] if kind.is_send else ""
    blocked = blocked_at(program, wait.action, wait.cause)
    if blocked == "rendezvous":
        receiver = escape_text(program.action(wait.cause).peer)
        return f"{receiver} to receive its {_AWAITED[kind]}, blocked in a rendezvous", ""
    return f"{_AWAITED[kind]}{' for later, blocked in a receive,' if blocked else ''}", source


def _group(program: Program, key: tuple[str, str, str], entries: list[Wait]) -> WaitGroup:
    longest = max(entries, key=lambda wait: wait.end_s - wait.start_s)
    device, awaited, source = key
    return WaitGroup(
        device=device,
        awaited=awaited,
        source=source,
        waited_s=sum(wait.end_s - wait.start_s for wait in entries),
        # Clocks of measured devices may disagree, so that a transfer seems to begin after the action that waits for it.
        transfer_s=sum(max(0.0, wait.transfer_s) for wait in entries) if awaited else 0.0,
        num_waits=len(entries),
        longest_before=str(program.action(longest.action)),
    )
