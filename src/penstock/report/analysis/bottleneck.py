"""What limits an iteration: its critical path, added up by the device, link or all-reduce that it is spent on."""

from typing import NamedTuple

from penstock.program import RECV_KINDS, SEND_KINDS, Kind, Program
from penstock.report.names import shown_name
from penstock.timeline import Timeline, critical_path, device_uses
from penstock.units import show_percent, show_seconds

MOST_NAMED = 3
LEAST_NAMED = 0.01
"""Parts of the path below this share of the iteration are not named one by one."""
AS_LONG = 0.99
"""Who works at least this part of the bottleneck's time works as long."""
FULL = 0.9
"""A device that works at least this part of the iteration limits it, whatever the critical path runs over."""
MAIN = 0.5
"""What takes at least this share of the critical path is called the bottleneck."""


class Place(NamedTuple):
    """Where a part of the critical path is spent: on a device, on a link, or (neither named) in all-reduces."""

    device: str = ""
    source: str = ""
    target: str = ""

    @property
    def in_words(self) -> str:
        """As it stands behind a share of time."""
        if self.device:
            return f"computing on {shown_name(self.device)}"
        if self.source:
            return f"in transfers from {shown_name(self.source)} to {shown_name(self.target)}"
        return "in all-reduces"

    @property
    def name(self) -> str:
        """As it stands behind "the bottleneck is"."""
        if self.device:
            return shown_name(self.device)
        if self.source:
            return f"the link from {shown_name(self.source)} to {shown_name(self.target)}"
        return "the all-reduce of gradients"


def path_seconds(timeline: Timeline) -> dict[Place, float]:
    """The seconds of the critical path by where they are spent, the most first.

    An action on the path counts from its start to the start of the next: what follows on a link starts while the
    latency of what came before it still runs. A wait between two jobs counts where the message was that ended it. So
    the parts add up to the iteration, or to less where a measured timeline has gaps.
    """
    program = timeline.program
    path = critical_path(timeline)
    found: dict[Place, float] = {}
    for step, action in enumerate(path):
        end = float(timeline.end_s[action])
        if step + 1 < len(path):
            end = min(end, float(timeline.start_s[path[step + 1]]))
            message = int(timeline.cause[path[step + 1]])
            if message != action:
                waited = float(timeline.start_s[path[step + 1]]) - end
                place = _place(program, message)
                found[place] = found.get(place, 0.0) + max(0.0, waited)
        place = _place(program, action)
        found[place] = found.get(place, 0.0) + max(0.0, end - float(timeline.start_s[action]))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _place(program: Program, action: int) -> Place:
    """Where an action is done."""
    kind, home = Kind(int(program.kind[action])), program.devices[int(program.device_of[action])]
    if kind <= Kind.STEP:
        return Place(device=home)
    if kind in SEND_KINDS:
        return Place(source=home, target=program.devices[int(program.peer[action])])
    if kind in RECV_KINDS:
        return Place(source=program.devices[int(program.peer[action])], target=home)
    return Place()


def bottleneck_sentences(timeline: Timeline) -> list[str]:
    """Where the critical path is spent, and what the bottleneck is; nothing where an iteration takes no time."""
    iteration = timeline.iteration_s
    if iteration <= 0:
        return []
    parts = path_seconds(timeline)
    main, seconds = next(iter(parts.items()))
    if seconds < MAIN * iteration:
        return [_spread_sentence(parts, iteration)]
    named = [item for item in list(parts.items())[:MOST_NAMED] if item[1] >= LEAST_NAMED * iteration]
    told = [f"{show_percent(value / iteration)} {place.in_words}" for place, value in named]
    rest = 1 - sum(value for _, value in named) / iteration
    if rest >= 0.0005:
        told.append(f"{show_percent(rest)} {'elsewhere' if len(parts) > len(named) else 'between jobs'}")
    path = f"the chain of jobs and transfers that sets the iteration's length (the critical path) is {_listed(told)}."
    busiest = max(device_uses(timeline), key=lambda use: use.busy_s)
    if main.device and busiest.busy_s >= FULL * iteration and busiest.busy_s * AS_LONG > _busy_s(timeline, main.device):
        # Several chains are about as long: this device has work for all of the time.
        full = f"{shown_name(busiest.device)}, which is hardly ever idle"
        head = f"The bottlenecks are {full}, and {main.name}: {path}"
        return [head + _ends(timeline, busiest.device)]
    return [f"The bottleneck is {main.name}: {path}" + (_ends(timeline, main.device) if main.device else "")]


def _busy_s(timeline: Timeline, device: str) -> float:
    return next(use.busy_s for use in device_uses(timeline) if use.device == device)


def _spread_sentence(parts: dict[Place, float], iteration: float) -> str:
    """For a path without one main part: its sums by sort."""
    sorts = (
        ("computing on {} device{}", [value for place, value in parts.items() if place.device]),
        ("in transfers on {} link{}", [value for place, value in parts.items() if place.source]),
        ("in all-reduces", [value for place, value in parts.items() if place == Place()]),
    )
    told = [
        f"{show_percent(sum(values) / iteration)} {text.format(len(values), '' if len(values) == 1 else 's')}"
        for text, values in sorts
        if sum(values) >= LEAST_NAMED * iteration
    ]
    longest, seconds = next(iter(parts.items()))
    return (
        "No single device or link is the bottleneck: the chain of jobs and transfers that sets the iteration's length "
        f"(the critical path) is {_listed(told)}; most of it, {show_percent(seconds / iteration)}, {longest.in_words}."
    )


def _ends(timeline: Timeline, device: str) -> str:
    """How long the bottleneck works, how long it waits while the pipeline fills and drains, and who works as long."""
    uses = device_uses(timeline)
    use = next(item for item in uses if item.device == device)
    begins = f"{show_seconds(use.first_s)} after its start" if use.first_s > 0 else "its start"
    left = timeline.iteration_s - use.last_s
    ends = f"{show_seconds(left)} before its end" if left > 0 else "its end"
    alike = sum(AS_LONG * use.busy_s <= item.busy_s <= use.busy_s / AS_LONG for item in uses) - 1
    others = f"; {alike} other{' works' if alike == 1 else 's work'} as long" if alike else ""
    share = show_percent(use.busy_s / timeline.iteration_s)
    return f" {shown_name(device)} works {share} of the iteration, from {begins} to {ends}{others}."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
