"""Building blocks of a V: no two passes of a device share a slot, and dependencies rise."""

from collections.abc import Callable

import numpy as np
import pytest

from penstock.schedules.methods.v_half import half_block
from penstock.schedules.methods.v_min import min_block
from penstock.schedules.ordering.v_block import PERIOD, VBlock


@pytest.mark.parametrize("make_block", [half_block, min_block])
def test_blocks_repeat_without_collisions(make_block: Callable[[int], VBlock]) -> None:
    for num_devices in range(1, 80):
        block = make_block(num_devices)
        stages = np.arange(2 * num_devices)
        forward, backward = block.forward(stages, 0 * stages), block.backward(stages, 0 * stages)
        assert (np.diff(forward) > 0).all()
        assert (np.diff(backward) < 0).all()
        assert (forward < backward).all()
        for device in range(num_devices):
            held = [device, 2 * num_devices - 1 - device]
            assert len({int(slot) % PERIOD for slot in (*forward[held], *backward[held])}) == 4
        assert (block.forward(stages, 0 * stages + 5) - forward == 5 * PERIOD).all()


@pytest.mark.parametrize("make_block", [half_block, min_block])
def test_most_kept_is_what_a_block_keeps(make_block: Callable[[int], VBlock]) -> None:
    """With both weight gradients in the free slots behind I, in the better of their two orders."""
    for num_devices in range(1, 40):
        block = make_block(num_devices)
        assert block.most_kept == max(_peak(block, device) for device in range(num_devices))


def _peak(block: VBlock, device: int) -> int:
    held = np.array([device, 2 * block.num_devices - 1 - device])
    starts, ends = block.forward(held, 0 * held).tolist(), block.backward(held, 0 * held).tolist()
    free = sorted(set(range(PERIOD)) - {slot % PERIOD for slot in (*starts, *ends)})
    peaks = []
    for slots in (free, free[::-1]):
        kept = 0
        weights = [end + 1 + (slot - end - 1) % PERIOD for end, slot in zip(ends, slots, strict=True)]
        for now in range(100 * PERIOD * block.num_devices, 100 * PERIOD * block.num_devices + PERIOD):
            alive = [
                (now - start) // PERIOD - (now - weight - 1) // PERIOD
                for start, weight in zip(starts, weights, strict=True)
            ]
            kept = max(kept, sum(alive))
        peaks.append(kept)
    return min(peaks)
