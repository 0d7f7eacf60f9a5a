"""All-reduces over devices of one host, by the number of devices and by size."""

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import torch
import torch.distributed as dist

from penstock.device import DeviceClock, Mark, is_accelerator, own_stream
from penstock.probe.rank_group import Group
from penstock.probe.types import RankInfo, hosts_of
from penstock.profile import MeasuredAllReduce

SIZES = tuple(1 << power for power in range(14, 29, 2))
"""Bytes, as long as none takes longer than `SLOW_S`: 16 kB to 256 MB."""
NUM_TIMED = 5
SLOW_S = 0.2
EXTRA_S = 60.0


def measure_all_reduces(
    group: Group, rank_infos: tuple[RankInfo, ...], show: Callable[[str], None]
) -> tuple[MeasuredAllReduce, ...]:
    """Measure all-reduces over 2, 4, 8, ... and all devices of the host with the most. All ranks call this.

    Raises:
        RunError: A rank failed, exited or did not respond in time; all ranks raise the same error.
    """
    ranks = max(hosts_of(rank_infos).values(), key=len)
    found = []
    for count in counts_of(len(ranks)):
        show(f"all-reduce over {count} devices of a host")
        members = ranks[:count]
        process_group = dist.new_group(members)
        entries: list[tuple[float, float]] = []
        for num_bytes in SIZES:

            def local(num_bytes: int = num_bytes) -> float:
                return _seconds(group, process_group, num_bytes) if group.rank in members else 0.0  # noqa: B023

            # The last device to finish counts.
            taken = max(group.gather(float, local, f"an all-reduce over {count} devices", extra_s=EXTRA_S))
            entries.append((float(num_bytes), taken))
            if taken > SLOW_S and len(entries) > 1:
                break
        sizes, seconds = zip(*entries, strict=True)
        found.append(MeasuredAllReduce(num_devices=count, num_bytes=sizes, seconds=seconds))
    return tuple(found)


def counts_of(num_devices: int) -> list[int]:
    """The numbers of devices to measure.

    >>> counts_of(6)
    [2, 4, 6]
    """
    powers = [1 << power for power in range(1, num_devices.bit_length()) if 1 << power <= num_devices]
    return sorted({*powers, *([num_devices] if num_devices > 1 else [])})


def _seconds(group: Group, process_group: object, num_bytes: int) -> float:
    """The second best of several all-reduces; each is a barrier for the next."""
    values = torch.zeros(num_bytes // 4, device=group.device)
    limit = timedelta(seconds=group.timeout_s)
    clock = DeviceClock(group.device)
    marks: list[Mark] = []
    with own_stream(group.device):
        for _ in range(NUM_TIMED + 1):
            work = dist.all_reduce(values, group=process_group, async_op=True)
            if is_accelerator(group.device):
                work.wait()
            else:
                work.wait(limit)
            marks.append(clock.mark())
        ends = clock.seconds(marks)
    return sorted(end - start for start, end in pairwise(ends))[1]
