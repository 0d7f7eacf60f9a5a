"""Why devices waited: all waits of a timeline, added up by device and by what they were for."""

import msgspec

from penstock.program import NONE, Kind, Program
from penstock.report.names import shown_name
from penstock.timeline import Timeline, Wait, waits
from penstock.units import show_seconds

_THINGS = {
    Kind.SEND_F: "activations",
    Kind.SEND_B: "gradients",
    Kind.SEND_S: "saved tensors",
    Kind.SEND_P: "parameters",
    Kind.REDUCE_GRAD: "summed gradients of its group",
    Kind.REDUCE_TIE: "summed gradients of shared parameters",
}


class WaitGroup(msgspec.Struct, frozen=True):
    """All waits of one device for one kind of thing from one place."""

    device: str
    thing: str
    """What it waited for, in words; empty where nothing that the program knows of held it back."""
    source: str
    """The device that it came from; empty for sums."""
    waited_s: float
    transfer_s: float
    """How much of that the transfers took themselves; the rest was for what came before them."""
    num_waits: int
    longest_before: str
    """The action before which it waited longest."""

    @property
    def in_words(self) -> str:
        """A sentence.

        >>> WaitGroup("d2", "gradients", "d3", 0.0312, 0.0031, 8, "2B7").in_words
        'd2 waited 31.2 ms for gradients from d3 (transfer 3.10 ms), 8x, longest before 2B7'
        """
        reason = " with nothing to wait for in the program"
        if self.thing:
            source = f" from {shown_name(self.source)}" if self.source else ""
            reason = f" for {self.thing}{source} (transfer {show_seconds(self.transfer_s)})"
        times = f"{self.num_waits}x, longest" if self.num_waits > 1 else "once,"
        waited = f"{shown_name(self.device)} waited {show_seconds(self.waited_s)}"
        return f"{waited}{reason}, {times} before {self.longest_before}"


def grouped_waits(timeline: Timeline) -> list[WaitGroup]:
    """The groups, those with the longest total first."""
    found: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in waits(timeline):
        found.setdefault((wait.device, *_reason(timeline.program, wait)), []).append(wait)
    groups = [_group(timeline.program, key, entries) for key, entries in found.items()]
    # Equal sums keep the order of the devices, since sorting keeps the order of equals.
    return sorted(groups, key=lambda group: -group.waited_s)


def _reason(program: Program, wait: Wait) -> tuple[str, str]:
    if wait.cause == NONE:
        return "", ""
    kind = Kind(int(program.kind[wait.cause]))
    if kind not in _THINGS:
        return "", ""
    source = program.devices[int(program.device_of[wait.cause])] if kind <= Kind.SEND_P else ""
    return _THINGS[kind], source


def _group(program: Program, key: tuple[str, str, str], entries: list[Wait]) -> WaitGroup:
    longest = max(entries, key=lambda wait: wait.end_s - wait.start_s)
    device, thing, source = key
    return WaitGroup(
        device=device,
        thing=thing,
        source=source,
        waited_s=sum(wait.end_s - wait.start_s for wait in entries),
        # Clocks of measured devices may disagree, and a transfer seem to begin after what waited for it.
        transfer_s=sum(max(0.0, wait.transfer_s) for wait in entries) if thing else 0.0,
        num_waits=len(entries),
        longest_before=str(program.action(longest.action)),
    )
