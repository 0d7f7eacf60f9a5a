"""The exchange of a probe's consensus: through the store of torch.distributed, not over the links that are measured.

Values are JSON. All ranks get the same answer, which rank 0 publishes once.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from penstock.dist import Failed, translate_errors
from penstock.errors import RunError

PATIENCE = 1.5
"""Rank 0 waits longer than the ranks that measure by this factor, and the others longer than rank 0 by the same factor.

So the rank closest to a failure reports it first.
"""
LEAVE_S = 5.0


class ReportedError(RunError):
    """A failure that rank 0 reports as well, so that other ranks need not print it."""


class _Message(msgspec.Struct, frozen=True):
    """A value or a failure, as it is written to the store."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    hint: str = ""


class StoreExchange:
    """Carries values of type `msgspec.Raw`: JSON text.

    Args:
        store: The store of torch.distributed.
        rank: This rank.
        world: Number of ranks.
        timeout_s: Deadline of the ranks that measure.
    """

    def __init__(self, store: Any, rank: int, world: int, timeout_s: float) -> None:
        self._store = store
        self._rank, self._world = rank, world
        self._timeout_s = timeout_s
        self._num_exchanges = 0
        self.names: Sequence[str] = [f"rank {number}" for number in range(world)]
        """Names of all ranks in messages."""

    def gather(self, result: msgspec.Raw | Failed, what: str, extra_s: float) -> list[msgspec.Raw | Failed]:
        """Return the results of all ranks on rank 0, up to that of the first rank that failed."""
        self._num_exchanges += 1
        if self._rank:
            self._put(str(self._rank), result)
            return []
        results = [result]
        limit_s = self._timeout_s * PATIENCE + extra_s
        for peer in range(1, self._world):
            if isinstance(results[-1], Failed):
                break
            results.append(self._get(str(peer), limit_s, peer, what, RunError))
        return results

    def scatter(
        self, answers: Sequence[msgspec.Raw] | Failed | None, what: str, extra_s: float
    ) -> msgspec.Raw | Failed:
        """Return the answer, which is the same for all ranks."""
        if answers is None:
            limit_s = self._timeout_s * PATIENCE**2 + extra_s
            return self._get("all", limit_s, 0, what, ReportedError)
        if isinstance(answers, Failed):
            with suppress(RunError):  # the failure matters more than a store that is gone
                self._put("all", answers)
            return answers
        self._put("all", answers[0])
        return answers[0]

    def leave(self) -> None:
        """End the exchange. Rank 0 may host the store: it waits until the others have read the last answer."""
        end_s = time.monotonic() + LEAVE_S
        with suppress(RuntimeError):
            if self._rank:
                self._store.set(f"bye/{self._rank}", "1")
                return
            for peer in range(1, self._world):
                left_s = max(0.01, end_s - time.monotonic())
                self._store.wait([f"bye/{peer}"], timedelta(seconds=left_s))

    def _put(self, key: str, value: msgspec.Raw | Failed) -> None:
        if isinstance(value, Failed):
            message = _Message(error=value.error.what, hint=value.error.hint)
        else:
            message = _Message(value)
        with translate_errors(lambda: f"{self.names[self._rank]}, writing to the store"):
            self._store.set(f"{self._num_exchanges}/{key}", msgspec.json.encode(message).decode())

    def _get(self, key: str, limit_s: float, peer: int, what: str, error: type[RunError]) -> msgspec.Raw | Failed:
        with translate_errors(lambda: f"waiting for {self.names[peer]} to finish {what}", limit_s):
            self._store.wait([f"{self._num_exchanges}/{key}"], timedelta(seconds=limit_s))
            text = self._store.get(f"{self._num_exchanges}/{key}")
        message = msgspec.json.decode(text, type=_Message)
        return Failed(error(message.error, hint=message.hint)) if message.error else message.value
