"""What of a segment's calls is looked at, and how: no more than must be, as to look takes longer than small calls do.

Calls of torch's functions are looked at (`interception.py`) if random numbers are drawn, if sums are over the rows of
several ranks, or if weight gradients are put off of what is not a layer that can be listened to (`listening.py`). The
first run of a segment shows which. That nothing is drawn later either is for the caller to see, who has
`streams.untouched` around an iteration; a weight gradient that later comes from elsewhere is not put off.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from penstock.runtime.interception import Interception
from penstock.runtime.listening import Listening
from penstock.runtime.meeting import Meeting
from penstock.runtime.rows import Rows
from penstock.runtime.streams import Streams
from penstock.runtime.weights import WeightJobs

Enter: TypeAlias = Callable[[int], None]

NOTHING: AbstractContextManager[None] = nullcontext()


class Looking:
    """What is known of one segment."""

    def __init__(
        self,
        model: nn.Module,
        parameters: Iterable[Tensor],
        *,
        seed: int,
        is_split: bool,
        device: torch.device,
        meeting: Meeting | None,
    ) -> None:
        self.seed = seed
        self._is_split = is_split
        self._device = device
        self._meeting = meeting
        self._modules = list(model.modules())
        self._listening = Listening(model.named_modules(), parameters)
        self._draws: dict[bytes, bool] = {}
        """Whether random numbers may be drawn, by which modules are in training: as far as is known."""
        self._puts_off: dict[bytes, bool] = {}
        """Likewise, whether weight gradients are put off that are not heard by listening."""
        self._training = b""
        self.begin()

    def begin(self) -> None:
        """Before an iteration: see which modules are in training. To look before every job would take too long."""
        self._training = bytes([module.training for module in self._modules])

    def at_forward(self, jobs: WeightJobs | None, step: int, rows: Rows) -> AbstractContextManager[Enter | None]:
        """Around a forward. What comes of it is told which unit comes next, if it is there."""
        if not self._must_intercept(jobs):
            return NOTHING if jobs is None else self._listening.to(jobs.defer)
        return self._intercepted(jobs, step, rows)

    def at_backward(self, jobs: WeightJobs | None) -> AbstractContextManager[Any]:
        """Around a backward, in which blocks may run again (torch.utils.checkpoint)."""
        if not self._must_intercept(jobs):
            return NOTHING if jobs is None else self._listening.to(jobs.defer)
        return self._interception(None, jobs) if jobs is None else self._both(jobs)

    @contextmanager
    def _both(self, jobs: WeightJobs) -> Iterator[None]:
        with self._interception(None, jobs), self._listening.to(jobs.defer):
            yield

    def _must_intercept(self, jobs: WeightJobs | None) -> bool:
        is_plain = self._meeting is None and self._draws.get(self._training) is False
        return not is_plain or (jobs is not None and self._puts_off.get(self._training, True))

    @contextmanager
    def _intercepted(self, jobs: WeightJobs | None, step: int, rows: Rows) -> Iterator[Enter]:
        draws = self._draws.get(self._training)
        streams = Streams(self.seed, step, rows, is_split=self._is_split, device=self._device)
        listening = NOTHING if jobs is None else self._listening.to(jobs.defer)
        with streams.kept(), self._interception(streams, jobs) as mode, listening:
            yield partial(streams.enter, watch=draws is None)
            streams.leave()
        self._draws.setdefault(self._training, streams.may_draw)
        if jobs is not None:
            self._puts_off.setdefault(self._training, mode.has_put_off)

    def _interception(self, streams: Streams | None, jobs: WeightJobs | None) -> Interception:
        puts_off = jobs is not None and self._puts_off.get(self._training, True)
        defer = jobs.defer if jobs is not None and puts_off else None
        return Interception(streams, defer, None if self._meeting is None else self._meeting.add_up)
