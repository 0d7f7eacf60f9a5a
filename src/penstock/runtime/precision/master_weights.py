"""Master weights: the copy of the parameters in float32 that optimizers update."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from penstock.errors import InputError


class MasterWeights:
    """The master weights of a rank.

    Layers compute with their own parameters, of a smaller type. Within an iteration these hold the gradients, in the
    type of the master weights; between iterations, the master weights do.

    Args:
        parameters: The parameters of layers, by name.
        values: The values of the parameters before they were converted, by name.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
        self.weights = {name: nn.Parameter(_widen(values[name])) for name in parameters}
        """The master weights, by name."""
        self._layers: list[Tensor] = list(parameters.values())
        self._masters: list[Tensor] = list(self.weights.values())
        for layer, master in zip(self._layers, self._masters, strict=True):
            master.grad, layer.grad = layer.grad, None
        self._versions: list[tuple[int, int]] = []
        self.note_versions()

    def note_versions(self) -> None:
        """Record that layers have the values of the master weights at this moment."""
        self._versions = self._current_versions()

    def _current_versions(self) -> list[tuple[int, int]]:
        return [(layer._version, master._version) for layer, master in zip(self._layers, self._masters, strict=True)]

    def refresh(self) -> None:
        """Before an iteration: give layers the values of master weights that have changed outside the optimizer step.

        Raises:
            InputError: Parameters of layers have changed, which would be lost.
        """
        if not self._masters:
            return
        current = self._current_versions()
        if any(now[0] != then[0] for now, then in zip(current, self._versions, strict=True)):
            raise InputError(
                "parameters of layers have changed, but not their master weights, which the optimizer updates",
                hint="Change the parameters of pipe.named_parameters(), or use pipe.load.",
            )
        if current != self._versions:
            self.publish()

    def begin(self) -> None:
        """Before the first backward: layers add to the gradients of earlier iterations."""
        for layer, master in zip(self._layers, self._masters, strict=True):
            layer.grad = master.grad

    def finish(self) -> None:
        """After the last backward: the optimizer finds the gradients at the master weights."""
        for layer, master in zip(self._layers, self._masters, strict=True):
            master.grad, layer.grad = layer.grad, None

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the master weights to the layers, which rounds them."""
        if self._masters:
            torch._foreach_copy_(self._layers, self._masters)
        self.note_versions()


def _widen(values: Tensor) -> Tensor:
    dtype = torch.promote_types(values.dtype, torch.float32)
    # A copy even of the same type: the values may be those of another tensor, or used by the script.
    return values.detach().to(dtype, copy=True, memory_format=torch.preserve_format)
