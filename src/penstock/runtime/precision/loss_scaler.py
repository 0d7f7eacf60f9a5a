"""Dynamic loss scaling: gradients of float16 are computed of a scaled loss, so that few of them become zero.

A step whose gradients are not finite on any rank is skipped on all ranks. The scale is halved then, and doubled after
`GROWTH_INTERVAL` steps in a row that were not skipped, as by `torch.amp.GradScaler`.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

INITIAL_SCALE = 2.0**16
GROWTH, BACKOFF = 2.0, 0.5
GROWTH_INTERVAL = 2000
MIN_SCALE, MAX_SCALE = 2.0**-24, 2.0**96
"""A gradient in float32 of a loss scaled by more would overflow by itself."""

State = tuple[float, int]
"""The scale, and the number of steps since it has changed."""


class LossScaler:
    """The loss scale, equal on all ranks. It is a power of two, so that scaling changes no other bit of a gradient.

    Args:
        parameters: The parameters of layers that this rank trains.
        any_rank: Returns whether a flag is set on any rank. Collective.
        scale: The first scale.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], any_rank: Callable[[Tensor], bool], scale: float = INITIAL_SCALE
    ) -> None:
        self.scale = scale
        self.overflowed = False
        """Whether the gradients since the last optimizer step are not finite on some rank. Then the step is skipped."""
        self._num_good_steps = 0
        self._parameters = list(parameters)
        self._any_rank = any_rank
        self._is_settled = True

    @property
    def state(self) -> State:
        """What a checkpoint holds."""
        return self.scale, self._num_good_steps

    def restore(self, state: State) -> None:
        """Continue with a state."""
        self.scale, self._num_good_steps = state
        self.overflowed, self._is_settled = False, True

    def begin(self) -> None:
        """Before the first backward of an iteration: scale the gradients of earlier iterations too."""
        if self._is_settled:
            self.overflowed, self._is_settled = False, False
        for values in _by_type(self._grads()):
            torch._foreach_mul_(values, self.scale)

    def finish(self) -> None:
        """After the last backward: divide the gradients by the scale, and find out if they are finite. Collective."""
        grads = self._grads()
        device = grads[0].device if grads else torch.device("cpu")
        found = torch.zeros(1, device=device)
        inverse = torch.full((1,), 1.0 / self.scale, device=device)
        for values in _by_type(grads):
            torch._amp_foreach_non_finite_check_and_unscale_(values, found, inverse)
        self.overflowed = self._any_rank(found) or self.overflowed

    def settle(self) -> None:
        """After an optimizer step, or its omission: choose the next scale."""
        if self._is_settled:
            return
        self._is_settled = True
        if self.overflowed:
            self.scale, self._num_good_steps = max(self.scale * BACKOFF, MIN_SCALE), 0
            return
        self._num_good_steps += 1
        if self._num_good_steps >= GROWTH_INTERVAL:
            self.scale, self._num_good_steps = min(self.scale * GROWTH, MAX_SCALE), 0

    def _grads(self) -> list[Tensor]:
        grads = [item.grad for item in self._parameters if item.grad is not None]
        return [_values(grad) for grad in grads]


def _values(grad: Tensor) -> Tensor:
    """The numbers of a gradient, which may be sparse."""
    return grad._values() if grad.is_sparse else grad


def _by_type(grads: Sequence[Tensor]) -> list[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for grad in grads:
        groups.setdefault(grad.dtype, []).append(grad)
    return list(groups.values())
