"""What of a stage's calls is looked at, and how: no more than must be, as to look takes longer than small calls do.

Calls of torch's functions are looked at (`interception.py`) if random numbers are drawn, if sums are over the rows of
several ranks, or if weight gradients are put off of what is not a layer that can be listened to (`listening.py`). The
first run of a stage shows which. That nothing is drawn later either is for the caller to see, who has
`streams.untouched` around an iteration; a weight gradient that later comes from elsewhere is not put off.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor, nn

from penstock.runtime.rng import Streams
from penstock.runtime.stage.function_mode import Interception
from penstock.runtime.stage.replica_sync import Meeting
from penstock.runtime.stage.wgrad_functions import Defer
from penstock.runtime.stage.wgrad_hooks import Listening
from penstock.runtime.stage.wgrad_queue import WeightJobs
from penstock.runtime.tensors import Rows

Enter: TypeAlias = Callable[[int], None]

NOTHING: AbstractContextManager[None] = nullcontext()


class Looking:
    """What is known of one stage."""

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
        return self._intercepted(jobs, step, rows) if self._must_intercept(jobs) else self._heard(jobs)

    def at_backward(self, jobs: WeightJobs | None) -> AbstractContextManager[None]:
        """Around a backward, in which blocks may run again (torch.utils.checkpoint)."""
        return self._seen_again(jobs) if self._must_intercept(jobs) else self._heard(jobs)

    def _must_intercept(self, jobs: WeightJobs | None) -> bool:
        is_plain = self._meeting is None and self._draws.get(self._training) is False
        return not is_plain or self._defer(jobs) is not None

    def _defer(self, jobs: WeightJobs | None) -> Defer | None:
        """Where weight gradients go that are not heard by listening, if there may be such."""
        return jobs.defer if jobs is not None and self._puts_off.get(self._training, True) else None

    def _heard(self, jobs: WeightJobs | None) -> AbstractContextManager[None]:
        return NOTHING if jobs is None else self._listening.to(jobs.defer)

    def _interception(self, streams: Streams | None, jobs: WeightJobs | None) -> Interception:
        return Interception(streams, self._defer(jobs), None if self._meeting is None else self._meeting.add_up)

    @contextmanager
    def _intercepted(self, jobs: WeightJobs | None, step: int, rows: Rows) -> Iterator[Enter]:
        draws = self._draws.get(self._training)
        streams = Streams(self.seed, step, rows, is_split=self._is_split, device=self._device)
        with streams.kept(), self._interception(streams, jobs) as mode, self._heard(jobs):
            yield partial(streams.enter, watch=draws is None)
            streams.leave()
        self._draws.setdefault(self._training, streams.may_draw)
        if jobs is not None:
            self._puts_off.setdefault(self._training, mode.has_put_off)

    @contextmanager
    def _seen_again(self, jobs: WeightJobs | None) -> Iterator[None]:
        with self._interception(None, jobs), self._heard(jobs):
            yield
