"""DAPPLE's placement policies, and every way to hand out devices stage by stage that they allow.

How many devices of each host are taken (always its first ones) is all that a policy looks at:

- fresh first: from hosts that nobody uses yet, one host after another, then from the others;
- append first: from hosts that are in use but not full, then from fresh ones;
- scatter first: one by one in turn from the hosts in use that have room, or from all if none has; then from the others.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

Taken = tuple[int, ...]
"""How many devices of each host are taken."""

MOST_STEPS = 6000


class Step(NamedTuple):
    """A stage's devices: those between what was taken before and what is taken after."""

    before: Taken
    after: Taken


def fresh_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Fill fresh hosts one after another, then hosts in use.

    >>> fresh_first((1, 0, 0), (2, 2, 2), 3)
    (1, 2, 1)
    """
    fresh, used = _parts(taken)
    return _fill(taken, sizes, count, fresh + used)


def append_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Fill hosts in use, then fresh hosts one after another.

    >>> append_first((1, 0, 0), (2, 2, 2), 2)
    (2, 1, 0)
    """
    fresh, used = _parts(taken)
    return _fill(taken, sizes, count, used + fresh)


def scatter_first(taken: Taken, sizes: Taken, count: int) -> Taken:
    """Take from hosts in use that have room in turn, or from all where none is in use.

    >>> scatter_first((0, 0, 0), (2, 2, 2), 4)
    (2, 1, 1)
    """
    fresh, used = _parts(taken)
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
    """All steps that are searched, those that start from fewer devices first, and those from the same ones together.

    Every stage may follow any policy and take any number of devices. Where that comes to more than `MOST_STEPS`, the
    devices of a host are taken in bricks of 2, 4, 8 and so on, until it does not; and plans that append with every
    stage, one device at a time, are searched as well. Where even whole hosts or single devices in a row are too many,
    stages take a power of two of them, or all that are left.
    """
    found = _reach(sizes, POLICIES, MOST_STEPS)
    if found is not None:
        return found
    brick = 1
    while found is None and brick < max(sizes):
        brick *= 2
        found = _reach(tuple(-(-size // brick) for size in sizes), POLICIES, MOST_STEPS)
    if found is None:
        found = _reach(tuple(-(-size // brick) for size in sizes), (append_first,), None, only_powers=True)
    bricks = [Step(_whole(step.before, sizes, brick), _whole(step.after, sizes, brick)) for step in found or []]
    row = _reach(sizes, (append_first,), MOST_STEPS) or _reach(sizes, (append_first,), None, only_powers=True)
    return sorted(dict.fromkeys(bricks + (row or [])), key=lambda step: (sum(step.before), step.before))


def _reach(sizes: Taken, policies: Sequence[Policy], most: int | None, *, only_powers: bool = False) -> Steps:
    """The steps from nothing taken on; None if there are more than `most`."""
    levels: list[dict[Taken, None]] = [{} for _ in range(sum(sizes) + 1)]
    levels[0][(0,) * len(sizes)] = None
    steps: list[Step] = []
    for level, states in enumerate(levels[:-1]):
        free = sum(sizes) - level
        counts = [1 << place for place in range(free.bit_length())] if only_powers else range(1, free)
        for taken in states:
            for after in dict.fromkeys(policy(taken, sizes, count) for count in (*counts, free) for policy in policies):
                steps.append(Step(taken, after))
                levels[sum(after)][after] = None
            if most is not None and len(steps) > most:
                return None
    return steps


def _whole(bricks: Taken, sizes: Taken, brick: int) -> Taken:
    """Devices instead of bricks; the last brick of a host may be smaller."""
    return tuple(min(number * brick, size) for number, size in zip(bricks, sizes, strict=True))


def _parts(taken: Taken) -> tuple[list[int], list[int]]:
    """Fresh hosts, and hosts in use."""
    fresh = [host for host, count in enumerate(taken) if count == 0]
    return fresh, [host for host, count in enumerate(taken) if count > 0]


def _fill(taken: Taken, sizes: Taken, count: int, hosts: Sequence[int]) -> Taken:
    now = list(taken)
    for host in hosts:
        more = min(count, sizes[host] - now[host])
        now[host] += more
        count -= more
    return tuple(now)
