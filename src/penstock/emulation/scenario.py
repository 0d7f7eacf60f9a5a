"""Scenarios: what happens to the devices and links of an emulated cluster over time, and the file format.

steps = 300
noise = "3 %"          # how much the speed of every device varies from step to step and from action to action
save-every = 10        # a lost device costs the steps since the last of these
seed = 0               # of the noise

[[event]]
at = "30s"             # of the cluster's time, counted from the first step
slow = "d1=2x"         # d1=1x: it has recovered

[[event]]
at = "1min"
link = "d0-d1=0.1x"

[[event]]
at = "90s"
kill = "d2"            # its process is killed; hang: it stops answering; back: it can be used again
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock import io
from penstock.cluster import Cluster
from penstock.emulation.faults import LinkFault, list_names, parse_link_fault, parse_slow_device
from penstock.errors import InputError
from penstock.names import suggest_names
from penstock.printable_text import escape_text
from penstock.units import parse_seconds

What = Literal["slow", "link", "kill", "hang", "back"]
WHATS: tuple[What, ...] = ("slow", "link", "kill", "hang", "back")
KEYS = ("steps", "of-steps", "noise", "save-every", "seed", "event")
MAX_STEPS = 1_000_000
MAX_EVENTS = 1000
MAX_NOISE = 1.0


class Happening(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One event of a scenario."""

    at_s: float
    what: What
    device: str = ""
    factor: float = 1.0
    link: LinkFault | None = None

    @property
    def sentence(self) -> str:
        """What happens, in words."""
        match self.what:
            case "slow":
                return f"{self.device} takes {self.factor:g} times as long"
            case "link":
                assert self.link is not None, "a link event has one"
                one, other = self.link.ends
                return f"links between {one} and {other} have {self.factor:g} times the bandwidth"
            case "kill":
                return f"the process of {self.device} is killed"
            case "hang":
                return f"{self.device} stops answering"
            case "back":
                return f"{self.device} can be used again"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A scenario: its steps, the noise, and its events in the order of time."""

    num_steps: int
    run_steps: int = 0
    """Steps of the run whose begin the scenario shows, which decisions count on; 0: the scenario's own."""
    noise: float = 0.0
    """Standard deviation, relative."""
    save_every: int = 1
    seed: int = 0
    events: tuple[Happening, ...] = ()

    def slowness(self, device: str, at_s: float) -> float:
        """By how much a device is slower than in the cluster at a time."""
        factors = [item.factor for item in self.events if item.what == "slow" and item.device == device]
        times = [item.at_s for item in self.events if item.what == "slow" and item.device == device]
        return next((factor for time, factor in reversed(list(zip(times, factors, strict=True))) if time <= at_s), 1.0)

    def link_faults(self, devices: Sequence[str]) -> tuple[LinkFault, ...]:
        """The changes of links between some devices."""
        faults = [item.link for item in self.events if item.link is not None]
        inside = [
            msgspec.structs.replace(
                fault, links=tuple(link for link in fault.links if link[0] in devices and link[1] in devices)
            )
            for fault in faults
        ]
        return tuple(fault for fault in inside if fault.links)

    def of(self, *whats: What) -> tuple[Happening, ...]:
        """The events of some kinds."""
        return tuple(item for item in self.events if item.what in whats)


def load_scenario(path: str | Path, cluster: Cluster) -> Scenario:
    """Read a scenario file.

    Args:
        path: The file.
        cluster: The cluster whose devices and links it names.

    Raises:
        FileError: The file cannot be read.
        InputError: It is not a valid scenario.
    """
    where = str(path)
    try:
        table = tomllib.loads(io.read_text(path).removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"this is not valid TOML: {escape_text(str(error))}", where=where) from None
    _check_keys(table, KEYS, where)
    rows = table.get("event", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("events must be tables", where=where, hint="Begin each with a line [[event]].")
    if len(rows) > MAX_EVENTS:
        raise InputError(f"{len(rows):,} events, but the limit is {MAX_EVENTS:,}", where=where)
    events = [_event(row, cluster, f"{where}, event {number}") for number, row in enumerate(rows, 1)]
    return Scenario(
        num_steps=_whole(table, "steps", None, 2, MAX_STEPS, where),
        run_steps=_whole(table, "of-steps", 0, 0, 10**9, where),
        noise=_noise(table.get("noise", 0), where),
        save_every=_whole(table, "save-every", 1, 1, MAX_STEPS, where),
        seed=_whole(table, "seed", 0, 0, 2**31, where),
        events=_checked(tuple(sorted(events, key=lambda item: item.at_s)), cluster, where),
    )


def _event(row: Mapping[str, Any], cluster: Cluster, where: str) -> Happening:
    _check_keys(row, ("at", *WHATS), where)
    chosen = [what for what in WHATS if what in row]
    if len(chosen) != 1:
        raise InputError(
            "an event does one thing", where=where, hint=f"Give it exactly one of the keys {', '.join(WHATS)}."
        )
    what, text = chosen[0], row[chosen[0]]
    at = row.get("at")
    if not isinstance(text, str) or not isinstance(at, str):
        raise InputError(
            f"at and {what} must be strings", where=where, hint=f'Write, for example, at = "30s" and {what} = "...".'
        )
    at_s = parse_seconds(at, where=where)
    names = [device.name for device in cluster.devices]
    if what == "slow":
        slow = parse_slow_device(text, names, where=where)
        return Happening(at_s=at_s, what=what, device=slow.device, factor=slow.factor)
    if what == "link":
        fault = parse_link_fault(text, cluster, names, where=where)
        if "@" in text.rpartition("=")[2]:
            raise InputError("the time of an event is that of its key at", where=where, hint="Remove the @ and after.")
        return Happening(at_s=at_s, what=what, factor=fault.factor, link=msgspec.structs.replace(fault, at_s=at_s))
    if text not in cluster.index:
        raise InputError(f"{escape_text(text[:60])!r} is not a device", where=where, hint=f"{list_names(names)}.")
    return Happening(at_s=at_s, what=what, device=text)


def _checked(events: tuple[Happening, ...], cluster: Cluster, where: str) -> tuple[Happening, ...]:
    """Check that only devices that are there are lost, and only lost ones return."""
    there = {device.name for device in cluster.devices}
    for item in events:
        is_there = item.device in there
        if item.what in ("kill", "hang") and not is_there:
            raise InputError(f"{item.device} is lost twice", where=where, hint="Let it come back in between.")
        if item.what == "back" and is_there:
            raise InputError(f"{item.device} comes back, but it was not lost", where=where)
        if item.what in ("kill", "hang"):
            there.discard(item.device)
        elif item.what == "back":
            there.add(item.device)
        if not there:
            raise InputError("all devices are lost", where=where, hint="Leave at least one.")
    return events


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in table:
        if key not in known:
            hint = suggest_names(key, known, label="Keys")
            raise InputError(f"unknown key {escape_text(key[:60])!r}", where=where, hint=hint)


def _whole(table: Mapping[str, Any], key: str, default: int | None, low: int, high: int, where: str) -> int:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{key} must be a whole number from {low} to {high:,}", where=where)
    return value


def _noise(value: object, where: str) -> float:
    number: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str) and value.strip().endswith("%"):
        number = _to_float(value.strip().removesuffix("%"), lambda percent: percent / 100)
    if number is None or not 0 <= number <= MAX_NOISE:
        raise InputError("noise must be a share from 0 to 1", where=where, hint='Use, for example, noise = "3 %".')
    return number


def _to_float(text: str, convert: Callable[[float], float]) -> float | None:
    try:
        return convert(float(text))
    except ValueError:
        return None
