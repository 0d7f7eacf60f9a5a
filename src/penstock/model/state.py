"""Preserving the state of a model: gradients, buffers, training flags and torch's random state."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from penstock.device import preserve_rng_states


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore buffers, gradients, training flags and torch's random state when the context ends."""
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())} | {torch.device("cpu")}
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    kept_gradients = [None if grad is None else grad.clone() for _, grad in gradients]
    buffers = [
        (module, name, buffer, None if buffer is None else buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
    ]
    modes = [(module, module.training) for module in model.modules()]
    with preserve_rng_states(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for (parameter, grad), kept in zip(gradients, kept_gradients, strict=True):
                    parameter.grad = grad
                    if grad is not None and kept is not None:
                        grad.copy_(kept)
                for module, name, buffer, kept in buffers:
                    module._buffers[name] = buffer
                    # An unchanged buffer is not written to: others may watch for changes of it.
                    if buffer is not None and kept is not None and not buffer.is_meta and not torch.equal(buffer, kept):
                        buffer.copy_(kept)
            for module, training in modes:
                module.training = training


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put all modules into eval mode, and restore the mode of each on exit."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        # Some modules keep values of their eval mode until `train` is called.
        model.train()
        for module, training in modes:
            module.training = training


AUXILIARY_LOSSES = ("router_aux_loss_coef", "router_z_loss_coef", "moe_loss_weight")
"""Names of attributes of models and configs of transformers: the weight of a loss that balances experts."""


@contextmanager
def without_auxiliary_losses(model: nn.Module) -> Iterator[None]:
    """Set the weights of losses that balance the experts of transformers models to 0 within the context.

    Such a loss is no mean over rows: it is computed for each micro-batch, as with gradient accumulation.
    """
    holders = {id(item): item for module in model.modules() for item in (module, module.__dict__.get("config"))}
    weights = [
        (item, name, value)
        for item in holders.values()
        for name, value in getattr(item, "__dict__", {}).items()
        if name in AUXILIARY_LOSSES and isinstance(value, float | int) and value
    ]
    for item, name, _ in weights:
        setattr(item, name, 0.0)
    try:
        yield
    finally:
        for item, name, value in weights:
            setattr(item, name, value)
