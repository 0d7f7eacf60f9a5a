"""The ranks of a probe: how they meet, with a deadline on every wait, and who is named when one does not come.

What ranks tell each other goes through the store of torch.distributed and not over the links that are measured. Rank 0
reads what each has to say and answers with all of it; whoever fails says so in the same way, so all stop with the same
message.
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

from penstock.dist import Watchdog
from penstock.errors import InputError, PeerLost, PenstockError, RunError, RuntimeTimeout
from penstock.model import own_gpu

T = TypeVar("T")

MORE_PATIENT = 1.5
"""Rank 0 waits so many times longer than those who measure, and the others longer still: the nearest tells first."""

FAREWELL_S = 5.0
SLACK_S = 60.0
"""So much longer than any deadline nothing may go on, before a rank ends itself."""

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class _Word(msgspec.Struct, frozen=True):
    """What a rank puts into the store."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    hint: str = ""


class ToldByFirstError(RunError):
    """A failure that rank 0 tells of too."""


class Group:
    """One rank's seat among the others."""

    def __init__(self, backend: str, device: torch.device, timeout_s: float, watchdog: Watchdog) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.backend, self.device, self.timeout_s = backend, device, timeout_s
        self.names = [f"rank {rank}" for rank in range(self.world)]
        self._store: Store = PrefixStore("penstock/probe", _get_default_store())
        self._num_met = 0
        self._watchdog = watchdog

    def gather(self, kind: type[T], mine: Callable[[], T], what: str, *, more_s: float = 0.0) -> list[T]:
        """What `mine` gives on each rank, known to all. All raise the same error if it fails on any.

        It is waited for `more_s` longer than for a rank that has nothing to do.
        """
        self._num_met += 1
        self._watchdog.heard(what)
        word, own_error = self._attempt(mine)
        self._put(f"{self._num_met}/{self.rank}", word)
        if self.rank == 0:
            words = self._collect(what, more_s)
            self._put(f"{self._num_met}/all", words)
        else:
            answer = self._get(f"{self._num_met}/all", self.timeout_s * MORE_PATIENT**2 + more_s, 0, what)
            words = msgspec.json.decode(answer, type=list[_Word])
        for item in words:
            if item.error:
                error = ToldByFirstError if self.rank else RunError
                raise error(item.error, hint=item.hint) from own_error
        return [msgspec.json.decode(item.value, type=kind) for item in words]

    def part(self) -> None:
        """Rank 0 may keep the store: it leaves when the others have read its last answer, or are not heard of."""
        end_s = time.monotonic() + FAREWELL_S
        with suppress(RuntimeError):
            if self.rank:
                self._store.set(f"bye/{self.rank}", "1")
                return
            for peer in range(1, self.world):
                left_s = max(0.01, end_s - time.monotonic())
                self._store.wait([f"bye/{peer}"], timedelta(seconds=left_s))

    def _collect(self, what: str, more_s: float) -> list[_Word]:
        words = []
        limit_s = self.timeout_s * MORE_PATIENT + more_s
        for peer in range(self.world):
            try:
                answer = self._get(f"{self._num_met}/{peer}", limit_s, peer, what)
            except RunError as error:
                return [_Word(error=error.what, hint=error.hint)]
            words.append(msgspec.json.decode(answer, type=_Word))
            if words[-1].error:
                return [words[-1]]
        return words

    def _attempt(self, mine: Callable[[], Any]) -> tuple[_Word, BaseException | None]:
        try:
            return _Word(msgspec.Raw(msgspec.json.encode(mine()))), None
        except PenstockError as error:
            return _Word(error=error.what, hint=error.hint), error
        except Exception as error:
            return _Word(error=f"{self.names[self.rank]}: {type(error).__name__}: {error}"), error

    def _put(self, key: str, value: object) -> None:
        try:
            self._store.set(key, msgspec.json.encode(value).decode())
        except RuntimeError as error:
            raise _without_store(error) from error

    def _get(self, key: str, limit_s: float, peer: int, what: str) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=limit_s))
            found: bytes = self._store.get(key)
        except RuntimeError as error:
            if "imed out" in str(error) or "imeout" in str(error):
                raise RuntimeTimeout(
                    f"{self.names[peer]} has not come to {what} within {limit_s:.0f} s",
                    hint="Has its process ended, or can it not be reached? Its own message says more.",
                ) from error
            raise _without_store(error) from error
        return found

    @contextmanager
    def waiting_for(self, peer: int, what: str) -> Iterator[None]:
        """Around transfers with a peer: what goes wrong there names it."""
        try:
            yield
        except RuntimeError as error:
            who = f"{self.names[self.rank]}, {what} {self.names[peer]}"
            if "imed out" in str(error) or "imeout" in str(error):
                raise RuntimeTimeout(
                    f"{who}: nothing came of it within {self.timeout_s:g} s",
                    hint=f"{self.names[peer]} may have ended, or a firewall may be in between.",
                ) from error
            raise PeerLost(
                f"{who}: the connection is lost ({str(error).splitlines()[0][:160]})",
                hint=f"{self.names[peer]} has ended, or cannot be reached: its own message says more.",
            ) from error


def _without_store(error: BaseException) -> PeerLost:
    return PeerLost(
        f"the store through which ranks meet is gone ({str(error).splitlines()[0][:160]})",
        hint="The process that keeps it (rank 0, or torchrun) has ended: its own message says more.",
    )


@contextmanager
def open_group(backend: str | None, timeout_s: float) -> Iterator[Group]:
    """The group of the ranks that torchrun, or `--local`, has started."""
    missing = [name for name in _NEEDED if name not in os.environ]
    if missing:
        raise InputError(
            f"a probe needs several processes, and {missing[0]} is not set",
            hint="Start it by torchrun (docs/clusters.md), or here alone: penstock cluster probe --local 2",
        )
    chosen = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cpu")
    if chosen == "nccl":
        if not torch.cuda.is_available():
            raise InputError("nccl needs a GPU, and torch finds none here", where="--backend", hint="Use gloo.")
        device = own_gpu()
    watchdog = Watchdog(3 * timeout_s + SLACK_S, f"rank {os.environ['RANK']}")
    try:
        dist.init_process_group(chosen, timeout=timedelta(seconds=timeout_s))
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(
            f"rank {os.environ['RANK']}: the {os.environ['WORLD_SIZE']} ranks have not all met at {where} within "
            f"{timeout_s:g} s ({str(error).splitlines()[0][:160]})",
            hint="Is every host started, with the same address? With several networks, set GLOO_SOCKET_IFNAME.",
        ) from error
    group = Group(chosen, device, timeout_s, watchdog)
    try:
        yield group
    finally:
        group.part()
    dist.destroy_process_group()
    watchdog.done()
