"""The recipe of a precision in a single process, written as plainly as possible. It is the reference of `precision/`.

Layers compute in the type of the parameters. After each backward, a hook adds the gradient of a parameter to that of
its master weight, in float32. The optimizer updates master weights, and the parameters become rounded copies of them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from penstock.device import float32_products
from penstock.profile import TrainingPrecision

GROWTH_INTERVAL = 2000
LOW = (torch.float16, torch.bfloat16)


class PlainPrecision:
    """A model in a precision.

    Args:
        model: The model, which is converted.
        precision: The precision; None: the model computes as it is.
        loss_scale: The first loss scale.
    """

    def __init__(self, model: nn.Module, precision: TrainingPrecision | None, loss_scale: float = 65536.0) -> None:
        self._precision = precision
        self._scales = precision is not None and precision.scales_loss
        self._model = model
        self.scale = loss_scale if self._scales else 1.0
        self.skips_step = False
        self._num_good, self._has_stepped = 0, True
        values = {name: item.detach().clone() for name, item in model.named_parameters()}
        if precision is not None:
            model.to(getattr(torch, precision.parameter_type))
        trained = {name: item for name, item in model.named_parameters() if item.requires_grad}
        self.parameters = dict(trained)
        """The parameters for the optimizer: master weights where there are any."""
        if precision is not None and precision.has_master_weights:
            for name, layer in trained.items():
                wide = torch.promote_types(values[name].dtype, torch.float32)
                self.parameters[name] = nn.Parameter(values[name].to(wide))
                layer.register_post_accumulate_grad_hook(self._adder(self.parameters[name]))  # type: ignore[no-untyped-call]

    @staticmethod
    def _adder(master: nn.Parameter) -> Any:
        def add(layer: Tensor) -> None:
            assert layer.grad is not None, "the hook runs after a gradient was added"
            grad = layer.grad.to(master.dtype)
            master.grad = grad if master.grad is None else master.grad + grad
            layer.grad = None

        return add

    @contextmanager
    def context(self, device: torch.device) -> Iterator[None]:
        """Context of an iteration."""
        with ExitStack() as stack:
            if self._precision is not None:
                stack.enter_context(float32_products(allow_tf32=self._precision.uses_tf32))
                if self._precision.autocast_type is not None:
                    dtype = getattr(torch, self._precision.autocast_type)
                    stack.enter_context(torch.autocast(device.type, dtype))
            yield

    def narrow(self, inputs: Any) -> Any:
        """Inputs in the type of the parameters."""
        if self._precision is None or not self._precision.has_master_weights:
            return inputs
        dtype = getattr(torch, self._precision.parameter_type)
        return _map(inputs, lambda item: item.to(dtype) if item.is_floating_point() else item)

    def widen(self, output: Any) -> Any:
        """An output, or a loss, in float32."""
        if self._precision is None or not self._precision.has_master_weights:
            return output
        return _map(output, lambda item: item.float() if item.dtype in LOW else item)

    def begin(self) -> None:
        """Before the first backward of an iteration."""
        if self._has_stepped:
            self.skips_step = self._has_stepped = False
        self._multiply_grads(self.scale)

    def finish(self) -> None:
        """After the last backward of an iteration."""
        self._multiply_grads(1 / self.scale)
        grads = [item.grad for item in self.parameters.values() if item.grad is not None]
        if self._scales and not all(bool(grad.isfinite().all()) for grad in grads):
            self.skips_step = True

    def _multiply_grads(self, factor: float) -> None:
        for item in self.parameters.values():
            if self._scales and item.grad is not None:
                item.grad = item.grad * factor

    def before_optimizer(self) -> None:
        """Before an optimizer step."""
        if self.skips_step:
            for item in self.parameters.values():
                item.grad = None

    @torch.no_grad()
    def after_optimizer(self) -> None:
        """After an optimizer step."""
        layers = dict(self._model.named_parameters())
        for name, item in self.parameters.items():
            layers[name].copy_(item)
        if not self._scales or self._has_stepped:
            return
        self._has_stepped = True
        if self.skips_step:
            self.scale, self._num_good = self.scale / 2, 0
        elif self._num_good + 1 == GROWTH_INTERVAL:
            self.scale, self._num_good = self.scale * 2, 0
        else:
            self._num_good += 1


def _map(tree: Any, change: Any) -> Any:
    return pytree.tree_map(lambda leaf: change(leaf) if isinstance(leaf, Tensor) else leaf, tree)
