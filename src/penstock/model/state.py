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
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
