"""The random generators of torch that work on a device reads."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from penstock.device.selection import is_accelerator
from penstock.errors import InputError


def default_generators(device: torch.device) -> tuple[torch.Generator, ...]:
    """Return the generators that work on a device reads: that of the CPU, and that of the device if it has one."""
    if not is_accelerator(device):
        return (torch.default_generator,)
    index = torch.accelerator.current_device_index() if device.index is None else device.index
    module = torch.get_device_module(device.type)
    if not hasattr(module, "default_generators"):
        raise InputError(
            f"torch.{device.type} has no default_generators, so its random numbers cannot be reproduced",
            hint="Use another device, such as cpu.",
        )
    if not module.default_generators:  # created when the device is first used
        module.init()
    return torch.default_generator, module.default_generators[index]


@contextmanager
def preserve_rng_states(devices: Iterable[torch.device]) -> Iterator[None]:
    """Restore the states of the generators of the CPU and of some devices on exit."""
    generators = list(dict.fromkeys(item for device in devices for item in default_generators(device)))
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
