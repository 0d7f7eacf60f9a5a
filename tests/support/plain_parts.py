"""Plain twins of the compiled parts of the devices, with sets and exact integers."""

from collections.abc import Iterable, Sequence
from itertools import combinations_with_replacement


def joined(num_devices: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """For each device the first device of its part, where the two devices of every pair share a part."""
    parts = [{device} for device in range(num_devices)]
    for one, other in pairs:
        for device in parts[one] | parts[other]:
            parts[device] = parts[one] | parts[other] | parts[device]
    return [min(part) for part in parts]


def passing(
    done_s: Sequence[float], seconds: Sequence[Sequence[float]], rest_s: Sequence[float], limit_s: float
) -> list[int]:
    """The parts of devices between which a result can pass.

    Args:
        done_s: When the result is ready on each device.
        seconds: [source][target] of the transfers of all micro-batches.
        rest_s: The least time from the arrival at each device to the end.
        limit_s: The iteration time.
    """
    every = range(len(done_s))
    return joined(
        len(done_s), [(a, b) for a in every for b in every if done_s[a] + seconds[a][b] + rest_s[b] <= limit_s]
    )


def overfull(
    steps: Sequence[Sequence[int]],
    turns: Sequence[Sequence[int]],
    work: Sequence[float],
    price: Sequence[float],
    limit_s: float,
) -> bool:
    """Whether the work of some run of units exceeds what each part that it cannot leave can do.

    Where a shorter run is not bound to a part of the devices, a longer one from the same unit is not either.
    """

    def parts(first: int, last: int) -> list[int]:
        labels = [*turns[first : last + 1], *steps[first:last]]
        return joined(len(price), [pair for label in labels for pair in enumerate(label)])

    for first, last in combinations_with_replacement(range(len(work)), 2):
        if first < last and not any(parts(first, last - 1)):
            continue
        label = parts(first, last)
        largest = max(sum(price[d] for d in range(len(price)) if label[d] == part) for part in label)
        if sum(work[first : last + 1]) > limit_s * largest:
            return True
    return False


def unpackable(
    back: Sequence[Sequence[int]],
    saved: Sequence[Sequence[int]],
    part: Sequence[int],
    work: tuple[Sequence[int], Sequence[int]],
    capacity: Sequence[int],
    multiples: int,
    max_sizes: int,
) -> bool:
    """Whether whole multiples of some item exceed those of the parts. `work`: forward and backward of each unit."""

    def crosses(label: Sequence[int]) -> bool:
        return any(part[device] != part[first] for device, first in enumerate(label))

    items, run = [], 0
    for unit, (forward, backward) in enumerate(zip(*work, strict=True)):
        if crosses(saved[unit]):
            items.append(forward)
            run += backward
        else:
            run += forward + backward
        if crosses(back[unit]) or unit == len(back) - 1:
            items.append(run)
            run = 0
    sizes = sorted((item for item in items if item > 0), reverse=True)[:max_sizes]
    return any(
        sum(item * multiple // size for item in items) > sum(room * multiple // size for room in capacity)
        for size in sizes
        for multiple in range(1, multiples + 1)
    )
