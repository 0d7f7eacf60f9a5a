"""The process groups of torch.distributed that carry messages.

Gloo matches messages by tag, so one group serves for all. NCCL has no tags: messages from one rank to another match by
order. The program's messages have an order on every link, which the proof checks, so activations, gradients and
gradient reductions go over NCCL. All other messages (forms, the loss, sums of batch norm) have no order relative to
those, and go through host memory over gloo, in the control group.

[Note: one group for each link] Inside an NCCL group one message may block another, whatever its peer: a receive that is
posted early would block a send. Every directed link therefore has its own group.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from time import perf_counter, sleep
from typing import Any

import torch
import torch.distributed as dist

from penstock.device import TAGGED_BACKEND, backend_for, is_accelerator, is_tagged
from penstock.dist import CONSENSUS_TAG, connect_when_used, translate_errors, wait_for
from penstock.errors import InputError
from penstock.runtime.transport.contact_rounds import contact_rounds

POLL_S = 2e-5
SEND_POLL_S = 1e-3
"""Only the send queue waits for the end of a send, so it may poll rarely."""
CONTACT_TAG = CONSENSUS_TAG + 2
GROUP_TIMEOUT_FACTOR = 4
MIN_GROUP_TIMEOUT_S = 600.0
"""NCCL's own timeout starts when a message is posted and ends the process. Penstock's timeout expires first."""

Link = tuple[int, int]
"""The rank that sends, and the rank that receives."""


@dataclass(frozen=True)
class ProcessGroups:
    """The process groups of one rank."""

    control: Any
    """Gloo: tensors in host memory and Python objects, matched by tag."""
    links: Mapping[Link, "OrderedLink"] = field(default_factory=dict)
    """Device tensors, matched by order."""
    is_in_order: bool = False
    """Whether payloads go over `links`. Otherwise everything goes over the control group."""
    orders_streams: bool = False
    """Whether the device waits for messages, and not the host."""
    opened: tuple[Any, ...] = ()
    """The groups to destroy at the end, each once."""

    def p2p_group(self, source: int, target: int) -> Any:
        """Return the group for device tensors from one rank to another."""
        return self.links[source, target] if self.is_in_order else self.control

    def close(self) -> None:
        """Destroy the groups, with their threads and connections. Everything sent must have arrived."""
        for group in self.opened:
            # ValueError: the script has destroyed all groups. RuntimeError: a group of a backend written in Python
            # has no name to unregister, which torch finds out last.
            with suppress(ValueError, RuntimeError):
                dist.destroy_process_group(group)

    def with_deadline(self, work: Any) -> Any:
        """Return a handle for work on device tensors whose `wait` keeps its deadline."""
        return PolledWork(work) if self.is_in_order else work


class PolledWork:
    """A work handle whose own `wait` may block the device instead of the caller, and ignore the deadline."""

    def __init__(self, work: Any, every_s: float = POLL_S) -> None:
        self._work = work
        self._every_s = every_s

    def wait(self, timeout: timedelta) -> None:
        """Block the caller until the work has completed.

        Raises:
            RuntimeError: The work has failed, or not completed in time.
        """
        until_s = perf_counter() + timeout.total_seconds()
        while not self._work.is_completed():
            if perf_counter() > until_s:
                raise RuntimeError("timed out")
            sleep(self._every_s)
        # Raises the error of the work.
        self._work.wait()

    def is_completed(self) -> bool:
        """Return whether the work has completed."""
        return bool(self._work.is_completed())

    def order_stream(self) -> None:
        """Let the current stream of the device wait for the work. The caller does not."""
        self._work.wait()


class OrderedLink:
    """Messages of one directed link, matched by order."""

    def __init__(self, link: Link, group: Any) -> None:
        self._group_rank = {rank: group_rank for group_rank, rank in enumerate(sorted(link))}
        self._group = group

    def send(self, tensors: list[torch.Tensor], peer: int, _tag: int = 0) -> PolledWork:
        """Start a send."""
        work = self._group.send([_as_bytes(item) for item in tensors], self._group_rank[peer], 0)
        return PolledWork(work, SEND_POLL_S)

    def recv(self, tensors: list[torch.Tensor], peer: int, _tag: int = 0) -> PolledWork:
        """Post a receive."""
        return PolledWork(self._group.recv([_as_bytes(item) for item in tensors], self._group_rank[peer], 0))


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View the same memory as bytes: NCCL does not support every dtype."""
    return tensor.view(torch.uint8)


def select_backend(device: torch.device) -> str:
    """Return the backend of torch.distributed for tensors on a device.

    Raises:
        InputError: torch.distributed was initialized without a backend that sends from this device.
    """
    backends = dict(item.split(":") for item in dist.get_backend_config().split(","))
    backend = backends.get(device.type)
    if backend is not None and (backend != TAGGED_BACKEND or not is_accelerator(device)):
        return backend
    raise InputError(
        f"the model is on {device}, but torch.distributed was initialized with "
        f"{', '.join(sorted(set(backends.values())))}, which does not send from that device",
        hint=f"Call torch.distributed.init_process_group with {backend_for(device)}, or move the model to another "
        "device.",
    )


def open_control_group(timeout_s: float) -> Any:
    """Open the gloo group for messages through host memory. Collective: every rank must call this.

    Two ranks connect when they first exchange a message (`connect_pairs`), or in a collective call.
    """
    limit = timedelta(seconds=timeout_s)
    with connect_when_used():
        return dist.new_group(list(range(dist.get_world_size())), backend=TAGGED_BACKEND, timeout=limit)


def connect_pairs(control: Any, rank: int, pairs: Collection[Link], timeout_s: float) -> None:
    """Exchange a first message between this rank and those with which it will use the control group. Collective.

    The first message between two ranks blocks until both have come to it. In the middle of a program ranks could block
    each other in a cycle, so they connect here, in rounds (`contact_rounds.py`).
    """
    byte = torch.zeros(1, dtype=torch.uint8)
    for in_round in contact_rounds({(min(pair), max(pair)) for pair in pairs}):
        for low, high in in_round:
            if rank in (low, high):
                describe = partial(_describe, rank, f"connecting rank {low} to rank {high}")
                with translate_errors(describe):
                    work = (
                        control.send([byte], high, CONTACT_TAG)
                        if rank == low
                        else control.recv([byte], low, CONTACT_TAG)
                    )
                wait_for(work, timeout_s, describe)


def open_process_groups(
    control: Any,
    backend: str,
    links: Collection[Link],
    rings: Sequence[tuple[int, ...]],
    *,
    device: torch.device,
    timeout_s: float,
) -> tuple[ProcessGroups, list[Any]]:
    """Open the groups for point-to-point messages and for gradient reductions.

    Collective: every rank must call this with the same links and rings. NCCL connects two ranks at their first message
    and blocks both until then. In the middle of a program ranks could block each other in a cycle, so they connect
    here, in rounds (`contact_rounds.py`).

    Args:
        control: The control group.
        backend: Backend for device tensors.
        links: Directed pairs of ranks that exchange payloads.
        rings: Ranks of each reduction, in the order of its ring.
        device: Device of the payloads.
        timeout_s: Deadline of every wait. The timeout of the groups themselves is longer.

    Returns:
        The process groups, and for each ring the group of its reduction.
    """
    limit = timedelta(seconds=max(MIN_GROUP_TIMEOUT_S, GROUP_TIMEOUT_FACTOR * timeout_s))
    new_group = partial(dist.new_group, backend=backend, timeout=limit)
    reductions = make_ring_groups(rings, new_group)
    if is_tagged(backend):
        return ProcessGroups(control, opened=(*_each_once(reductions), control)), reductions
    pairs = {link: new_group(list(link)) for in_round in contact_rounds(links) for link in in_round}
    ordered = {link: OrderedLink(link, group) for link, group in pairs.items()}
    opened = (*pairs.values(), *_each_once(reductions), control)
    groups = ProcessGroups(control, ordered, is_in_order=True, orders_streams=is_accelerator(device), opened=opened)
    _connect(groups, reductions, dist.get_rank(), device, timeout_s)
    return groups, reductions


def make_ring_groups(rings: Sequence[tuple[int, ...]], new_group: Callable[..., Any]) -> list[Any]:
    """Make a process group for each ring of ranks; equal rings share one. Collective.

    In a ring every rank sends to the next one. Gloo sends to the previous rank of its group, so the order is reversed.
    """
    groups: dict[tuple[int, ...], Any] = {}
    for ranks in rings:
        if ranks not in groups:
            with connect_when_used():
                groups[ranks] = new_group(list(reversed(ranks)), sort_ranks=False)
    return [groups[ranks] for ranks in rings]


def _each_once(groups: Iterable[Any]) -> list[Any]:
    return list({id(group): group for group in groups}.values())


def _connect(
    groups: ProcessGroups, reductions: Iterable[Any], rank: int, device: torch.device, timeout_s: float
) -> None:
    """Exchange a first message over every link and in every reduction group."""
    dummy = torch.zeros(1, device=device)
    for (source, target), link in groups.links.items():
        if rank in (source, target):
            describe = partial(_describe, rank, f"connecting rank {source} to rank {target}")
            with translate_errors(describe):
                work = link.send([dummy], target) if rank == source else link.recv([dummy], source)
            wait_for(work, timeout_s, describe)
    for group in reductions:
        if dist.get_rank(group) >= 0:
            describe = partial(_describe, rank, "connecting the ranks of a gradient reduction")
            with translate_errors(describe):
                reduction = dist.all_reduce(dummy, group=group, async_op=True)
            wait_for(groups.with_deadline(reduction), timeout_s, describe)


def _describe(rank: int, what: str) -> str:
    return f"rank {rank}, {what}"
