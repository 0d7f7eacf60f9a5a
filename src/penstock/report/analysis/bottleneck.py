"""The bottleneck of an iteration: the critical path, summed by the device, link or all-reduce that it is spent on."""

from typing import NamedTuple

from penstock.printable_text import escape_text
from penstock.program import Kind, Program
from penstock.timeline import Timeline, critical_path, device_uses
from penstock.units import show_percent, show_seconds

MAX_NAMED_PARTS = 3
MIN_NAMED_SHARE = 0.01
"""Parts of the path below this share of the iteration are not named one by one."""
EQUAL_LOAD = 0.99
"""A device whose busy time is within this ratio of the bottleneck's is busy for as long."""
FULL_LOAD = 0.9
"""A device that is busy for at least this share of the iteration is a bottleneck, on the critical path or not."""
MAIN_SHARE = 0.5
"""A part with at least this share of the critical path is called the bottleneck."""


class PathLocation(NamedTuple):
    """Where a part of the critical path is spent: on a device, on a link, or (both empty) in all-reduces."""

    device: str = ""
    source: str = ""
    target: str = ""

    @property
    def activity(self) -> str:
        """The location as it follows a share of time."""
        if self.device:
            return f"computing on {escape_text(self.device)}"
        if self.source:
            return f"in transfers from {escape_text(self.source)} to {escape_text(self.target)}"
        return "in all-reduces"

    @property
    def name(self) -> str:
        """The location as it follows "the bottleneck is"."""
        if self.device:
            return escape_text(self.device)
        if self.source:
            return f"the link from {escape_text(self.source)} to {escape_text(self.target)}"
        return "the all-reduce of gradients"


class Bottleneck(NamedTuple):
    """What limits an iteration."""

    parts: dict[PathLocation, float]
    """Seconds of the critical path by location, the longest first."""
    main: PathLocation | None
    """The location with at least half of the path; None where the path is spread over many."""
    full_device: str
    """A device that is busy nearly all the time and busier than the main one; empty where there is none."""

    @property
    def device(self) -> str:
        """The device that limits the iteration; empty where a link or an all-reduce does, or no location dominates."""
        return self.full_device or (self.main.device if self.main is not None else "")


def path_seconds(timeline: Timeline) -> dict[PathLocation, float]:
    """Sum the seconds of the critical path by location, the longest first.

    An action on the path counts from its start to the start of the next one, because a transfer starts on a link while
    the latency of the transfer before it still runs. A wait between two actions counts for the message that ended it.
    So the parts add up to the iteration, or to less where a measured timeline has gaps.
    """
    program = timeline.program
    path = critical_path(timeline)
    seconds: dict[PathLocation, float] = {}
    for step, action in enumerate(path):
        end = float(timeline.end_s[action])
        if step + 1 < len(path):
            end = min(end, float(timeline.start_s[path[step + 1]]))
            message = int(timeline.cause[path[step + 1]])
            if message != action:
                waited = float(timeline.start_s[path[step + 1]]) - end
                location = _location(program, message)
                seconds[location] = seconds.get(location, 0.0) + max(0.0, waited)
        location = _location(program, action)
        seconds[location] = seconds.get(location, 0.0) + max(0.0, end - float(timeline.start_s[action]))
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def _location(program: Program, action: int) -> PathLocation:
    kind, device = Kind(int(program.kind[action])), program.devices[int(program.device_of[action])]
    if kind.is_compute:
        return PathLocation(device=device)
    if kind.is_send:
        return PathLocation(source=device, target=program.devices[int(program.peer[action])])
    if kind.is_recv:
        return PathLocation(source=program.devices[int(program.peer[action])], target=device)
    return PathLocation()


def find_bottleneck(timeline: Timeline) -> Bottleneck | None:
    """The bottleneck of a timeline; None where the iteration takes no time."""
    iteration = timeline.iteration_s
    if iteration <= 0:
        return None
    parts = path_seconds(timeline)
    main, seconds = next(iter(parts.items()))
    if seconds < MAIN_SHARE * iteration:
        return Bottleneck(parts, None, "")
    busiest = max(device_uses(timeline), key=lambda use: use.busy_s)
    # Several chains are about as long: the busiest device has work all the time.
    is_full = busiest.busy_s >= FULL_LOAD * iteration
    if main.device and is_full and busiest.busy_s * EQUAL_LOAD > _busy_s(timeline, main.device):
        return Bottleneck(parts, main, busiest.device)
    return Bottleneck(parts, main, "")


def bottleneck_sentences(timeline: Timeline) -> list[str]:
    """Describe the critical path and the bottleneck.

    Args:
        timeline: A simulated or measured timeline.

    Returns:
        One sentence, or none where the iteration takes no time.
    """
    bottleneck = find_bottleneck(timeline)
    if bottleneck is None:
        return []
    iteration, parts = timeline.iteration_s, bottleneck.parts
    if bottleneck.main is None:
        return [_spread_sentence(parts, iteration)]
    named = [item for item in list(parts.items())[:MAX_NAMED_PARTS] if item[1] >= MIN_NAMED_SHARE * iteration]
    shares = [f"{show_percent(seconds / iteration)} {location.activity}" for location, seconds in named]
    rest = 1 - sum(seconds for _, seconds in named) / iteration
    if rest >= 0.0005:
        shares.append(f"{show_percent(rest)} {'in smaller parts' if len(parts) > len(named) else 'between actions'}")
    path = f"the critical path is {_join(shares)}."
    if bottleneck.full_device:
        full = f"{escape_text(bottleneck.full_device)}, which is almost never idle"
        return [f"The bottlenecks are {full}, and {bottleneck.main.name}: {path}" + _load(timeline, bottleneck.device)]
    load = _load(timeline, bottleneck.device) if bottleneck.device else ""
    return [f"The bottleneck is {bottleneck.main.name}: {path}{load}"]


def _busy_s(timeline: Timeline, device: str) -> float:
    return next(use.busy_s for use in device_uses(timeline) if use.device == device)


def _spread_sentence(parts: dict[PathLocation, float], iteration: float) -> str:
    """Describe a path without a main part by its sums over devices, links and all-reduces."""
    groups = (
        ("computing on {} device{}", [seconds for location, seconds in parts.items() if location.device]),
        ("in transfers on {} link{}", [seconds for location, seconds in parts.items() if location.source]),
        ("in all-reduces", [seconds for location, seconds in parts.items() if location == PathLocation()]),
    )
    shares = [
        f"{show_percent(sum(seconds) / iteration)} {text.format(len(seconds), '' if len(seconds) == 1 else 's')}"
        for text, seconds in groups
        if sum(seconds) >= MIN_NAMED_SHARE * iteration
    ]
    longest, seconds = next(iter(parts.items()))
    return (
        f"No single device or link is the bottleneck: the critical path is {_join(shares)}; "
        f"its largest part is {show_percent(seconds / iteration)} {longest.activity}."
    )


def _load(timeline: Timeline, device: str) -> str:
    """How long the bottleneck is busy, how long it idles at both ends, and how many devices are busy for as long."""
    uses = device_uses(timeline)
    use = next(item for item in uses if item.device == device)
    begin = f"{show_seconds(use.first_s)} after its start" if use.first_s > 0 else "its start"
    left = timeline.iteration_s - use.last_s
    end = f"{show_seconds(left)} before its end" if left > 0 else "its end"
    num_equal = sum(EQUAL_LOAD * use.busy_s <= item.busy_s <= use.busy_s / EQUAL_LOAD for item in uses) - 1
    others = f"; {num_equal} other device{' is' if num_equal == 1 else 's are'} busy for as long" if num_equal else ""
    share = show_percent(use.busy_s / timeline.iteration_s)
    return f" {escape_text(device)} is busy for {share} of the iteration, from {begin} to {end}{others}."


def _join(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
