"""The groups of torch.distributed over which messages go.

Gloo matches messages by numbers (tags), so one group does for all. NCCL knows no numbers: what goes from one rank to
another matches by its order. The program's messages have an order on every link, which the proof checks, so tensors
between stages go in order there, and sums of gradients too; all else (words of what comes, the loss, sums of batch
norm) has no order with them, and goes through the host's memory by gloo. In a group of NCCL one message may wait for
another, whoever it is for: a receive that is posted early would hold up a send. So every link, in each direction, has
a group of its own.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist

from penstock.dist import failing_in_words, wait_for
from penstock.errors import InputError

BY_NUMBER = "gloo"
POLL_S = 2e-5
SENT_POLL_S = 1e-3
"""Nobody waits for the end of a send, but what was sent."""
PATIENCE = 4
LEAST_LIMIT_S = 600.0
"""NCCL has a deadline of its own, which counts from when a message is posted and ends the process: later than ours."""

Link = tuple[int, int]
"""Who sends, and to whom."""


@dataclass(frozen=True)
class Lanes:
    """The groups of one rank."""

    words: Any
    """For tensors in the host's memory, matched by numbers."""
    links: Mapping[Link, "InOrder"] = field(default_factory=dict)
    """For tensors on the device that go from one rank to another, in order."""
    is_in_order: bool = False
    """Whether these go over `links`; else all goes by numbers."""

    def between(self, source: int, target: int) -> Any:
        """For tensors on the device that go from one rank to another."""
        return self.links[source, target] if self.is_in_order else self.words

    def watched(self, work: Any) -> Any:
        """Work on the device that can be waited for with a deadline."""
        return Polled(work) if self.is_in_order else work


class Polled:
    """Work whose own wait may hold up the device instead of whoever waits, and know no deadline."""

    def __init__(self, work: Any, every_s: float = POLL_S) -> None:
        self._work = work
        self._every_s = every_s

    def wait(self, timeout: timedelta) -> None:
        """Wait until it has ended, at most so long."""
        until_s = perf_counter() + timeout.total_seconds()
        while not self._work.is_completed():
            if perf_counter() > until_s:
                raise RuntimeError("timed out")
            sleep(self._every_s)
        # Raises what went wrong.
        self._work.wait()


class InOrder:
    """The messages of one link, matched by their order."""

    def __init__(self, link: Link, group: Any) -> None:
        self._place = {rank: place for place, rank in enumerate(sorted(link))}
        self._group = group

    def send(self, tensors: list[torch.Tensor], peer: int, _tag: int = 0) -> Polled:
        """Set a send going."""
        return Polled(self._group.send([_bytes(item) for item in tensors], self._place[peer], 0), SENT_POLL_S)

    def recv(self, tensors: list[torch.Tensor], peer: int, _tag: int = 0) -> Polled:
        """Post a receive."""
        return Polled(self._group.recv([_bytes(item) for item in tensors], self._place[peer], 0))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory: there are types that NCCL does not know."""
    return tensor.view(torch.uint8)


def backend_for(device: torch.device) -> str:
    """What torch.distributed was set up with, for tensors on such a device."""
    known = dict(item.split(":") for item in dist.get_backend_config().split(","))
    found = known.get(device.type)
    if found is not None and (found != BY_NUMBER or device.type == "cpu"):
        return found
    wanted = {"cpu": BY_NUMBER, "cuda": "nccl"}.get(device.type, f"a backend for {device.type}")
    raise InputError(
        f"the model is on {device}, and torch.distributed was set up with {', '.join(sorted(set(known.values())))}, "
        "which does not send from there",
        hint=f"Call torch.distributed.init_process_group with {wanted}, or put the model elsewhere.",
    )


def open_words(timeout_s: float) -> Any:
    """The group for all that goes through the host's memory. Every rank must ask."""
    limit = timedelta(seconds=timeout_s)
    return dist.new_group(list(range(dist.get_world_size())), backend=BY_NUMBER, timeout=limit)


def open_lanes(
    words: Any,
    backend: str,
    links: Collection[Link],
    rings: Sequence[tuple[int, ...]],
    *,
    device: torch.device,
    timeout_s: float,
) -> tuple[Lanes, list[Any]]:
    """The groups for tensors that go over these links, and those for sums round these rings. Every rank must ask alike.

    NCCL lets ranks meet with their first message, and holds up both meanwhile: in the midst of a program they might
    wait in a circle. So they meet here, by one order.
    """
    limit = timedelta(seconds=max(LEAST_LIMIT_S, PATIENCE * timeout_s))
    new_group = partial(dist.new_group, backend=backend, timeout=limit)
    sums = make_groups(rings, new_group)
    if backend == BY_NUMBER:
        return Lanes(words), sums
    lanes = Lanes(words, {link: InOrder(link, new_group(list(link))) for link in sorted(links)}, is_in_order=True)
    _meet(lanes, sums, dist.get_rank(), device, timeout_s)
    return lanes, sums


def make_groups(rings: Sequence[tuple[int, ...]], new_group: Callable[..., Any]) -> list[Any]:
    """A process group for each ring of ranks, equal ones once; every rank must call this alike.

    In a ring every rank sends to the next. Gloo's send to the rank before them in their group, so that is turned round.
    """
    made: dict[tuple[int, ...], Any] = {}
    for ranks in rings:
        if ranks not in made:
            made[ranks] = new_group(list(reversed(ranks)), sort_ranks=False)
    return [made[ranks] for ranks in rings]


def _meet(lanes: Lanes, sums: Iterable[Any], rank: int, device: torch.device, timeout_s: float) -> None:
    nothing = torch.zeros(1, device=device)
    for (source, target), lane in lanes.links.items():
        if rank in (source, target):
            told = partial(_told, rank, f"the first message from rank {source} to rank {target}")
            with failing_in_words(told):
                work = lane.send([nothing], target) if rank == source else lane.recv([nothing], source)
            wait_for(work, timeout_s, told)
    for group in sums:
        if dist.get_rank(group) >= 0:
            told = partial(_told, rank, "the first sum over several ranks")
            with failing_in_words(told):
                summed = dist.all_reduce(nothing, group=group, async_op=True)
            wait_for(lanes.watched(summed), timeout_s, told)


def _told(rank: int, what: str) -> str:
    return f"rank {rank}, {what}"
