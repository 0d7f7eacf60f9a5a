"""The precision of a rank's training: autocast, master weights and the loss scale around every iteration."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from penstock.device import float32_products
from penstock.profile import TrainingPrecision
from penstock.runtime.precision.conversion import Conversion, convert_inputs, torch_type
from penstock.runtime.precision.loss_scaler import LossScaler
from penstock.runtime.precision.master_weights import MasterWeights


class MixedPrecision:
    """The precision of one rank.

    Args:
        precision: The precision. None: the model computes as it is.
        trained: The parameters of layers that this rank trains, by name.
        conversion: The conversion of the model, which knows the values before.
        device: The device of this rank.
        any_rank: Returns whether a flag is set on any rank. Collective.
        loss_scale: The first loss scale; None for the default.
    """

    def __init__(
        self,
        precision: TrainingPrecision | None,
        trained: Mapping[str, nn.Parameter],
        conversion: Conversion,
        device: torch.device,
        any_rank: Callable[[Tensor], bool],
        loss_scale: float | None = None,
    ) -> None:
        self._precision = precision
        self._device = device
        has_masters = precision is not None and precision.has_master_weights
        layers = dict(trained) if has_masters else {}
        self.masters = MasterWeights(layers, {name: conversion.original(item) for name, item in layers.items()})
        self.parameters: dict[str, nn.Parameter] = {**trained, **self.masters.weights}
        """The parameters for optimizers, by name: master weights where there are any."""
        self.scaler: LossScaler | None = None
        if precision is not None and precision.scales_loss:
            options = {} if loss_scale is None else {"scale": loss_scale}
            self.scaler = LossScaler(trained.values(), any_rank, **options)

    def convert_inputs(self, inputs: Any) -> Any:
        """Return the inputs of a batch in the type that layers expect."""
        return convert_inputs(inputs, self._precision)

    @property
    def loss_scale(self) -> float:
        """What the gradients of the loss are multiplied by at the moment."""
        return 1.0 if self.scaler is None else self.scaler.scale

    @property
    def skips_step(self) -> bool:
        """Whether the next optimizer step, or the last one, is skipped, because a gradient is not finite."""
        return self.scaler is not None and self.scaler.overflowed

    @contextmanager
    def context(self) -> Iterator[None]:
        """Context of an iteration or an evaluation."""
        if self._precision is None:
            yield
            return
        self.masters.refresh()
        with ExitStack() as stack:
            stack.enter_context(float32_products(allow_tf32=self._precision.uses_tf32))
            if self._precision.autocast_type is not None:
                dtype = torch_type(self._precision.autocast_type)
                stack.enter_context(torch.autocast(self._device.type, dtype))
            yield

    def begin(self) -> None:
        """Before the first backward of an iteration."""
        self.masters.begin()
        if self.scaler is not None:
            self.scaler.begin()

    def finish(self) -> None:
        """After the last backward of an iteration, and after reductions. Collective if the loss is scaled."""
        if self.scaler is not None:
            self.scaler.finish()
        self.masters.finish()

    def before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Before an optimizer step. If it must be skipped, the optimizer finds no gradients."""
        if self.skips_step:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None

    def after_optimizer(self) -> None:
        """After an optimizer step."""
        if self.scaler is not None:
            self.scaler.settle()
        self.masters.publish()
