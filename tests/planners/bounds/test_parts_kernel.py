"""The compiled parts of the devices equal their plain twins. Numbers are small and whole, so many are at a limit."""

import random
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrays import Floats
from penstock.planners.bounds.unreplicated_parts_kernel import (
    joined_over_all,
    joined_parts,
    overfull,
    unpackable,
)
from penstock.planners.bounds.unreplicated_paths_kernel import Chain
from tests.support import plain_parts
from tests.support.reach import reach, reaches
from tests.support.thoroughness import examples

CASES_PER_SEED = 20


def labels_of(draw: random.Random, num_units: int, num_devices: int, most: int) -> list[list[int]]:
    """Random parts for each unit."""

    def pairs() -> list[tuple[int, int]]:
        return [(draw.randrange(num_devices), draw.randrange(num_devices)) for _ in range(draw.randint(0, most))]

    return [plain_parts.joined(num_devices, pairs()) for _ in range(num_units)]


def numbers(draw: random.Random, most: int, *shape: int) -> Floats:
    return np.array([draw.randint(0, most) for _ in range(int(np.prod(shape)))], dtype=np.float64).reshape(shape)


@reaches(remote=0.2, some_joined=0.2, unreachable=0.2, at_the_limit=0.1)
@examples(100)
@given(st.integers(0, 2**32))
def test_joined_parts(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(CASES_PER_SEED):
        num_units, num_devices, num = draw.randint(1, 4), draw.randint(1, 5), draw.randint(1, 3)
        paths = numbers(draw, 6, 4, num_units, num_devices)
        paths[np.array([draw.random() < 0.1 for _ in range(paths.size)]).reshape(paths.shape)] = np.inf
        jobs, net = numbers(draw, 3, 3, num_units, num_devices), numbers(draw, 3, 2, num_devices, num_devices)
        cut, saved, limit_s = numbers(draw, 2, num_units), numbers(draw, 4, num_units), float(draw.randint(4, 24))
        remote = draw.random() < 0.5
        chain = Chain(
            jobs=jobs,
            step=numbers(draw, 1, num_units, num_devices),
            cut=cut,
            turn_bytes=0.0,
            net=net,
            num_microbatches=num,
            remote_backward=remote,
        )
        seconds = [[(net[0] + num * size * net[1]).tolist() for size in sizes] for sizes in (cut, saved)]
        forward_done, backward_done = (paths[0] + jobs[0]).tolist(), (paths[2] + jobs[1]).tolist()
        forward_rest, backward_rest = (jobs[0] + paths[1]).tolist(), (jobs[1] + paths[3]).tolist()
        alone = list(range(num_devices))
        expected = [
            [
                plain_parts.passing(forward_done[unit], seconds[0][unit], forward_rest[unit + 1], limit_s)
                for unit in range(num_units - 1)
            ]
            + [alone],
            [
                plain_parts.passing(backward_done[unit + 1], seconds[0][unit], backward_rest[unit], limit_s)
                for unit in range(num_units - 1)
            ]
            + [alone],
            [
                plain_parts.passing(forward_done[unit], seconds[1][unit], backward_rest[unit], limit_s)
                if remote
                else alone
                for unit in range(num_units)
            ],
        ]
        found = joined_parts(paths, chain, saved, limit_s)
        assert found.tolist() == expected
        reach("remote", remote and (found[2] != np.array(alone)).any())
        reach("some_joined", any(0 < len(set(label)) < num_devices for labels in expected for label in labels))
        reach("unreachable", any(len(set(label)) > 1 for label in expected[0][:-1]))
        reach("at_the_limit", (joined_parts(paths, chain, saved, limit_s - 1) != found).any())


@reaches(overfull=0.2, fits=0.2, one_unit_short=0.1)
@examples(100)
@given(st.integers(0, 2**32))
def test_overfull(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(CASES_PER_SEED):
        num_units, num_devices = draw.randint(1, 5), draw.randint(1, 5)
        steps, turns = (labels_of(draw, num_units, num_devices, 2) for _ in range(2))
        work, price = numbers(draw, 4, num_units), 1 + numbers(draw, 2, num_devices)
        found = []
        for limit_s in range(8):
            value = bool(overfull(np.array(steps), np.array(turns), work, price, float(limit_s)))
            assert value == plain_parts.overfull(steps, turns, work.tolist(), price.tolist(), limit_s)
            found.append(value)
        reach("overfull" if found[2] else "fits")
        reach("one_unit_short", sum(found) not in (0, len(found)))


@reaches(parts=0.3, one=0.2)
@examples(100)
@given(st.integers(0, 2**32))
def test_joined_over_all(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(CASES_PER_SEED):
        num_units, num_devices = draw.randint(1, 4), draw.randint(1, 6)
        steps, turns = (labels_of(draw, num_units, num_devices, 1) for _ in range(2))
        pairs = [pair for label in steps + turns for pair in enumerate(label)]
        found = joined_over_all(np.array(steps), np.array(turns))
        assert found.tolist() == plain_parts.joined(num_devices, pairs)
        reach("parts" if found.any() else "one")


@reaches(unpackable=0.2, fits=0.2, by_a_multiple=0.02, by_a_smaller_item=0.02)
@examples(150)
@given(st.integers(0, 2**32))
def test_unpackable(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(CASES_PER_SEED):
        num_units, num_devices = draw.randint(1, 6), draw.randint(1, 5)
        back, saved = (labels_of(draw, num_units, num_devices, 1) for _ in range(2))
        num_parts = draw.randint(1, num_devices)
        part = [draw.randrange(num_parts) for _ in range(num_devices)]
        forward, backward = numbers(draw, 5, num_units), numbers(draw, 5, num_units)
        # About as much as there is work, so that whole items decide.
        capacity = numbers(draw, max(1, round(1.6 * float(forward.sum() + backward.sum()) / num_parts)), num_parts)
        arrays = np.array(back), np.array(saved), np.array(part), forward, backward, capacity
        work, room = (forward.astype(int).tolist(), backward.astype(int).tolist()), capacity.astype(int).tolist()
        found = {}
        for multiples, max_sizes in product((1, 3), (1, 4)):
            value = bool(unpackable(*arrays, multiples, max_sizes))
            assert value == plain_parts.unpackable(back, saved, part, work, room, multiples, max_sizes)
            found[multiples, max_sizes] = value
        reach("unpackable" if found[3, 4] else "fits")
        reach("by_a_multiple", found[3, 1] and not found[1, 1])
        reach("by_a_smaller_item", found[1, 4] and not found[1, 1])
