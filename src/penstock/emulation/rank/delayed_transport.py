"""Mail that is held back for a link's latency before it is sent.

The kernel's shapers know bandwidths only. That every message of a link leaves so much later has the same effect: they
follow each other as closely as they would, and arrive as late.
"""

import heapq
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from penstock.dist import Tell
from penstock.emulation.rank.scratch import Scratch
from penstock.errors import RunError
from penstock.runtime.transport import Lanes, Mail

CALL_S = 3e-4
"""To ask for what is there already takes no longer than this."""


class HeldMail(Mail):
    """One rank's post; `hold_s` are the seconds for which what goes to each other rank is held."""

    def __init__(self, group: Any, timeout_s: float, hold_s: Mapping[int, float], scratch: Scratch) -> None:
        super().__init__(Lanes(group), torch.device("cpu"), timeout_s)
        self._scratch = scratch
        self._hold_s = {peer: seconds for peer, seconds in hold_s.items() if seconds > 0}
        self.waited_until_s = 0.0
        """When something came that had to be waited for, the last time."""
        self._held: list[tuple[float, int, Sequence[Tensor], int, int, Tell]] = []
        self._num_held = 0
        self._changed = threading.Condition()
        if self._hold_s:
            threading.Thread(target=self._let_go, name="penstock-held", daemon=True).start()

    def wait(self, work: Any, tell: Tell, more_s: float = 0.0) -> None:
        """Wait until a transfer has ended."""
        began_s = time.perf_counter()
        super().wait(work, tell, more_s)
        ended_s = time.perf_counter()
        if ended_s - began_s > CALL_S:
            self.waited_until_s = ended_s

    def send_tensors(self, tensors: Sequence[Tensor], peer: int, tag: int, tell: Tell) -> None:
        """Send tensors, later."""
        hold_s = self._hold_s.get(peer, 0.0)
        if not hold_s:
            super().send_tensors(tensors, peer, tag, tell)
            return
        with self._changed:
            self._num_held += 1
            due_s = time.perf_counter() + hold_s
            heapq.heappush(self._held, (due_s, self._num_held, tensors, peer, tag, tell))
            self._changed.notify_all()

    def empty(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A buffer."""
        found = self._scratch.like(shape, stride, dtype)
        return super().empty(shape, stride, dtype) if found is None else found

    def close(self) -> None:
        """Wait until everything sent has arrived."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, self.timeout_s)
        super().close()

    def _let_go(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._held))
                due_s = self._held[0][0]
                if due_s > time.perf_counter():
                    # Another one that is due before may come.
                    self._changed.wait(_until(due_s))
                    continue
                _, _, tensors, peer, tag, tell = heapq.heappop(self._held)
                try:
                    super().send_tensors(tensors, peer, tag, tell)
                except RunError as error:
                    self.sends.note(error)
                self._changed.notify_all()


def _until(at_s: float) -> float:
    return max(0.0, at_s - time.perf_counter())
