"""DAPPLE's placement policies, and all sequences of device assignments that they allow, stage by stage.

A policy depends only on how many devices of each host are taken (always the first ones of the host):

- fresh first: fill unused hosts one after another, then hosts in use;
- append first: fill hosts in use, then unused hosts one after another;
- scatter first: take devices round-robin from hosts in use, then round-robin from unused hosts.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

Taken = tuple[int, ...]
"""How many devices of each host are taken."""

MAX_STEPS = 6000


class Step(NamedTuple):
    """A stage's devices: those that are taken after it, and not before."""

    before: Taken
    after: Taken


def fresh_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Fill unused hosts one after another, then hosts in use.

    >>> fresh_first((1, 0, 0), (2, 2, 2), 3)
    (1, 2, 1)
    """
    fresh, used = _split_hosts(taken)
    return _fill(taken, sizes, count, fresh + used)


def append_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Fill hosts in use, then unused hosts one after another.

    >>> append_first((1, 0, 0), (2, 2, 2), 2)
    (2, 1, 0)
    """
    fresh, used = _split_hosts(taken)
    return _fill(taken, sizes, count, used + fresh)


def scatter_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Take devices round-robin from hosts in use, then round-robin from unused hosts.

    >>> scatter_first((0, 0, 0), (2, 2, 2), 4)
    (2, 1, 1)
    """
    fresh, used = _split_hosts(taken)
    now = list(taken)
    for hosts in (used, fresh):
        while count and any(now[host] < sizes[host] for host in hosts):
            for host in hosts:
                if count and now[host] < sizes[host]:
                    now[host] += 1
                    count -= 1
    return tuple(now)


Policy = Callable[[Taken, Taken, int], Taken]
Steps = list[Step] | None

POLICIES: tuple[Policy, ...] = (fresh_first, append_first, scatter_first)


def find_steps(sizes: Taken) -> list[Step]:
    """All steps of the search, sorted by the number of devices taken before; steps from the same state are adjacent.

    Every stage may follow any policy and take any number of devices. If that gives more than `MAX_STEPS` steps, stages
    take the devices of a host in bricks of 2, 4, 8 and so on, until it does not; the search then adds the steps that
    append single devices with every stage. If whole hosts, or single devices in a row, still give too many steps,
    stages take a power of two of them, or all that are left.
    """
    steps = _reach(sizes, POLICIES, MAX_STEPS)
    if steps is not None:
        return steps
    brick = 1
    while steps is None and brick < max(sizes):
        brick *= 2
        steps = _reach(tuple(-(-size // brick) for size in sizes), POLICIES, MAX_STEPS)
    if steps is None:
        steps = _reach(tuple(-(-size // brick) for size in sizes), (append_first,), None, only_powers=True)
    bricks = [
        Step(_brick_devices(step.before, sizes, brick), _brick_devices(step.after, sizes, brick))
        for step in steps or []
    ]
    row = _reach(sizes, (append_first,), MAX_STEPS) or _reach(sizes, (append_first,), None, only_powers=True)
    return sorted(dict.fromkeys(bricks + (row or [])), key=lambda step: (sum(step.before), step.before))


def _reach(sizes: Taken, policies: Sequence[Policy], most: int | None, *, only_powers: bool = False) -> Steps:
    """All steps that can be reached from no device taken; None if there are more than `most`."""
    levels: list[dict[Taken, None]] = [{} for _ in range(sum(sizes) + 1)]
    levels[0][(0,) * len(sizes)] = None
    steps: list[Step] = []
    for level, states in enumerate(levels[:-1]):
        free = sum(sizes) - level
        counts = [1 << power for power in range(free.bit_length())] if only_powers else range(1, free)
        for taken in states:
            for after in dict.fromkeys(policy(taken, sizes, count) for count in (*counts, free) for policy in policies):
                steps.append(Step(taken, after))
                levels[sum(after)][after] = None
            if most is not None and len(steps) > most:
                return None
    return steps


def _brick_devices(bricks: Taken, sizes: Taken, brick: int) -> Taken:
    """Convert bricks to devices; the last brick of a host may be smaller."""
    return tuple(min(number * brick, size) for number, size in zip(bricks, sizes, strict=True))


def _split_hosts(taken: Taken) -> tuple[list[int], list[int]]:
    """Unused hosts, and hosts in use."""
    fresh = [host for host, count in enumerate(taken) if count == 0]
    return fresh, [host for host, count in enumerate(taken) if count > 0]


def _fill(taken: Taken, sizes: Taken, count: int, hosts: Sequence[int]) -> Taken:
    now = list(taken)
    for host in hosts:
        more = min(count, sizes[host] - now[host])
        now[host] += more
        count -= more
    return tuple(now)
