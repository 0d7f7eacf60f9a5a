"""The process group of a probe. Every wait has a deadline, and errors name the rank that did not respond."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from penstock.device import backend_for, find_accelerator, is_accelerator, is_tagged, select_device
from penstock.dist import Consensus, Watchdog, is_local, join_process_group, translate_errors
from penstock.errors import InputError, PeerLost, PenstockError, RunError
from penstock.probe.store_exchange import StoreExchange

T = TypeVar("T")

SLACK_S = 60.0
"""Time without progress, beyond all deadlines, after which the watchdog ends the process."""

_REQUIRED = ("RANK", "WORLD_SIZE")
_REQUIRED_BY_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")


class Group:
    """One rank's view of the process group.

    Attributes:
        rank: This rank.
        world: Number of ranks.
        backend: Backend of torch.distributed.
        device: Device of this rank.
        timeout_s: Deadline of a transfer.
    """

    def __init__(self, backend: str, device: torch.device, timeout_s: float, watchdog: Watchdog) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.backend, self.device, self.timeout_s = backend, device, timeout_s
        store = PrefixStore("penstock/probe", _get_default_store())
        self._exchange = StoreExchange(store, self.rank, self.world, timeout_s)
        self._consensus = Consensus(self._exchange, self.rank, self.world)
        self._watchdog = watchdog

    @property
    def names(self) -> Sequence[str]:
        """Names of all ranks in messages."""
        return self._exchange.names

    @names.setter
    def names(self, names: Sequence[str]) -> None:
        self._exchange.names = names

    def gather(self, kind: type[T], local: Callable[[], T], what: str, *, extra_s: float = 0.0) -> list[T]:
        """Run `local` on every rank and return the results of all ranks, on all ranks.

        Args:
            kind: Type of the result.
            local: Runs on this rank.
            what: Name of the step, for errors.
            extra_s: Time that the step may take, in addition to the deadline.

        Raises:
            RunError: `local` failed on any rank, or a rank did not finish in time. All ranks raise the same error.
        """
        self._watchdog.report_progress(what)

        def encode_result() -> msgspec.Raw:
            try:
                return msgspec.Raw(msgspec.json.encode(local()))
            except PenstockError:
                raise
            except Exception as error:
                raise RunError(f"{self.names[self.rank]}: {type(error).__name__}: {error}") from error

        def encode_all(results: list[msgspec.Raw]) -> list[msgspec.Raw]:
            return [msgspec.Raw(msgspec.json.encode(results))] * self.world

        answer = self._consensus.decide(what, encode_result, encode_all, extra_s=extra_s)
        return msgspec.json.decode(answer, type=list[kind])  # type: ignore[valid-type]

    def leave(self) -> None:
        """Leave the group."""
        self._exchange.leave()

    def translate_errors(self, peer: int, what: str) -> AbstractContextManager[None]:
        """Translate the errors of transfers with a peer inside the context, and name the peer."""
        return translate_errors(lambda: f"{self.names[self.rank]}, {what} {self.names[peer]}", self.timeout_s)


@contextmanager
def open_group(backend: str | None, timeout_s: float, *, device: str | None = None) -> Iterator[Group]:
    """Join the process group of the ranks that torchrun or `--local` has started.

    Args:
        backend: Backend of torch.distributed. None: that of the accelerator, such as nccl; gloo without one.
        timeout_s: Deadline of every wait.
        device: Device of the ranks, such as cpu or cuda. None: that of the backend.

    Raises:
        InputError: The process was not started as a rank, or the backend needs a device that torch does not find.
        PeerLost: Not all ranks joined in time.
    """
    needed = _REQUIRED if is_local() else (*_REQUIRED, *_REQUIRED_BY_TORCHRUN)
    missing = [name for name in needed if name not in os.environ]
    if missing:
        raise InputError(
            f"a probe runs as several ranks, but {missing[0]} is not set",
            hint="Start it with torchrun (docs/clusters.md), or on this host only: penstock cluster probe --local 2",
        )
    chosen, selected = _select(backend, device)
    watchdog = Watchdog(3 * timeout_s + SLACK_S, f"rank {os.environ['RANK']}")
    try:
        join_process_group(f"{selected.type}:{chosen}" if is_accelerator(selected) else chosen, timeout_s)
    except (RuntimeError, ValueError) as error:
        where = "this host" if is_local() else f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(
            f"rank {os.environ['RANK']}: not all of the {os.environ['WORLD_SIZE']} ranks joined at {where} within "
            f"{timeout_s:g} s ({str(error).splitlines()[0][:160]})",
            hint="Start every host with the same address. With several networks, set GLOO_SOCKET_IFNAME.",
        ) from error
    group = Group(chosen, selected, timeout_s, watchdog)
    try:
        yield group
    finally:
        group.leave()
    dist.destroy_process_group()
    watchdog.stop()


def _select(backend: str | None, name: str | None) -> tuple[str, torch.device]:
    """Return the backend and the device of this rank."""
    if name is not None:
        device = select_device(name)
        if backend is not None and is_tagged(backend) == is_accelerator(device):
            raise InputError(f"{backend} does not send from {device.type}", where="--backend", hint="Leave it out.")
        return backend or backend_for(device), device
    found = find_accelerator()
    if (backend is not None and is_tagged(backend)) or (backend is None and found is None):
        return backend or backend_for(torch.device("cpu")), select_device("cpu")
    if found is None:
        raise InputError(f"{backend} requires a GPU, but torch finds none", where="--backend", hint="Use gloo.")
    return backend or backend_for(found), select_device()
