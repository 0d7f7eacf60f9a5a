"""The process group of a probe. Every wait has a deadline, and errors name the rank that did not respond.

Ranks exchange results through the store of torch.distributed, not over the links that are measured. Rank 0 reads the
result of each rank and publishes all of them. A failure is exchanged in the same way, so all ranks stop with the same
error.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store

from penstock.dist import Watchdog, is_local, join_process_group, translate_error
from penstock.errors import InputError, PeerLost, PenstockError, RunError
from penstock.model import select_gpu

T = TypeVar("T")

PATIENCE = 1.5
"""Rank 0 waits longer than the ranks that measure by this factor, and the others longer than rank 0 by the same factor.

So the rank closest to a failure reports it first.
"""

LEAVE_S = 5.0
SLACK_S = 60.0
"""Time without progress, beyond all deadlines, after which the watchdog ends the process."""

_REQUIRED = ("RANK", "WORLD_SIZE")
_REQUIRED_BY_TORCHRUN = ("MASTER_ADDR", "MASTER_PORT")


class _Message(msgspec.Struct, frozen=True):
    """The result or the error of a rank, as it is written to the store."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    hint: str = ""


class ReportedError(RunError):
    """A failure that rank 0 reports as well, so that other ranks need not print it."""


class Group:
    """One rank's view of the process group.

    Attributes:
        rank: This rank.
        world: Number of ranks.
        backend: Backend of torch.distributed.
        device: Device of this rank.
        timeout_s: Deadline of a transfer.
        names: Names of all ranks in messages.
    """

    def __init__(self, backend: str, device: torch.device, timeout_s: float, watchdog: Watchdog) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.backend, self.device, self.timeout_s = backend, device, timeout_s
        self.names = [f"rank {rank}" for rank in range(self.world)]
        self._store: Store = PrefixStore("penstock/probe", _get_default_store())
        self._num_exchanges = 0
        self._watchdog = watchdog

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
        self._num_exchanges += 1
        self._watchdog.report_progress(what)
        message, own_error = self._attempt(local)
        self._put(f"{self._num_exchanges}/{self.rank}", message)
        if self.rank == 0:
            messages = self._collect(what, extra_s)
            self._put(f"{self._num_exchanges}/all", messages)
        else:
            answer = self._get(f"{self._num_exchanges}/all", self.timeout_s * PATIENCE**2 + extra_s, 0, what)
            messages = msgspec.json.decode(answer, type=list[_Message])
        for item in messages:
            if item.error:
                error = ReportedError if self.rank else RunError
                raise error(item.error, hint=item.hint) from own_error
        return [msgspec.json.decode(item.value, type=kind) for item in messages]

    def leave(self) -> None:
        """Leave the group. Rank 0 may host the store: it waits until the others have read the last answer."""
        end_s = time.monotonic() + LEAVE_S
        with suppress(RuntimeError):
            if self.rank:
                self._store.set(f"bye/{self.rank}", "1")
                return
            for peer in range(1, self.world):
                left_s = max(0.01, end_s - time.monotonic())
                self._store.wait([f"bye/{peer}"], timedelta(seconds=left_s))

    def _collect(self, what: str, extra_s: float) -> list[_Message]:
        messages = []
        limit_s = self.timeout_s * PATIENCE + extra_s
        for peer in range(self.world):
            try:
                answer = self._get(f"{self._num_exchanges}/{peer}", limit_s, peer, what)
            except RunError as error:
                return [_Message(error=error.what, hint=error.hint)]
            messages.append(msgspec.json.decode(answer, type=_Message))
            if messages[-1].error:
                return [messages[-1]]
        return messages

    def _attempt(self, local: Callable[[], Any]) -> tuple[_Message, BaseException | None]:
        try:
            return _Message(msgspec.Raw(msgspec.json.encode(local()))), None
        except PenstockError as error:
            return _Message(error=error.what, hint=error.hint), error
        except Exception as error:
            return _Message(error=f"{self.names[self.rank]}: {type(error).__name__}: {error}"), error

    def _put(self, key: str, value: object) -> None:
        try:
            self._store.set(key, msgspec.json.encode(value).decode())
        except RuntimeError as error:
            raise translate_error(error, lambda: f"{self.names[self.rank]}, writing to the store") from error

    def _get(self, key: str, limit_s: float, peer: int, what: str) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=limit_s))
            value: bytes = self._store.get(key)
        except RuntimeError as error:
            raise translate_error(error, lambda: f"waiting for {self.names[peer]} to finish {what}", limit_s) from error
        return value

    @contextmanager
    def translate_errors(self, peer: int, what: str) -> Iterator[None]:
        """Translate the errors of transfers with a peer inside the context, and name the peer."""
        try:
            yield
        except RuntimeError as error:
            name = f"{self.names[self.rank]}, {what} {self.names[peer]}"
            raise translate_error(error, lambda: name, self.timeout_s) from error


@contextmanager
def open_group(backend: str | None, timeout_s: float) -> Iterator[Group]:
    """Join the process group of the ranks that torchrun or `--local` has started.

    Args:
        backend: Backend of torch.distributed. None: nccl with GPUs, else gloo.
        timeout_s: Deadline of every wait.

    Raises:
        InputError: The process was not started as a rank, or nccl is requested without a GPU.
        PeerLost: Not all ranks joined in time.
    """
    needed = _REQUIRED if is_local() else (*_REQUIRED, *_REQUIRED_BY_TORCHRUN)
    missing = [name for name in needed if name not in os.environ]
    if missing:
        raise InputError(
            f"a probe runs as several ranks, but {missing[0]} is not set",
            hint="Start it with torchrun (docs/clusters.md), or on this host only: penstock cluster probe --local 2",
        )
    chosen = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if chosen == "nccl":
        if not torch.cuda.is_available():
            raise InputError("nccl requires a GPU, but torch finds none", where="--backend", hint="Use gloo.")
        device = select_gpu()
    watchdog = Watchdog(3 * timeout_s + SLACK_S, f"rank {os.environ['RANK']}")
    try:
        join_process_group(chosen, timeout_s)
    except (RuntimeError, ValueError) as error:
        where = "this host" if is_local() else f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(
            f"rank {os.environ['RANK']}: not all of the {os.environ['WORLD_SIZE']} ranks joined at {where} within "
            f"{timeout_s:g} s ({str(error).splitlines()[0][:160]})",
            hint="Start every host with the same address. With several networks, set GLOO_SOCKET_IFNAME.",
        ) from error
    group = Group(chosen, device, timeout_s, watchdog)
    try:
        yield group
    finally:
        group.leave()
    dist.destroy_process_group()
    watchdog.stop()
