"""Processes of tests that use the device."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tests.support.late_device.device import (
    BACKEND,
    NAME,
    Settings,
    configure,
    load,
    take_host_waits,
    take_inference_failures,
    take_races,
)

GROUP_BACKEND = f"cpu:gloo,{NAME}:{BACKEND}"


def prepare_rank() -> None:
    """Load the device. Called in every process of a pool."""
    load()


class RaceError(AssertionError):
    """Work on the device was not ordered."""


@contextmanager
def checked_device(settings: Settings) -> Iterator[None]:
    """Use the device with some settings. Raise if accesses to its memory were not ordered.

    Raises:
        RaceError: A wait is missing, or memory was freed too early.
    """
    _settle()
    configure(settings)
    try:
        yield
        torch.accelerator.synchronize()
    finally:
        races = take_races()
        # A pipeline is part of cycles. Until they are collected, its gloo groups keep their threads, three for each.
        gc.collect()
        _settle()
        configure(Settings())
    if races:
        raise RaceError("\n".join(races))


def _settle() -> None:
    """Finish all work and forget what was recorded."""
    torch.accelerator.synchronize()
    take_races()
    take_host_waits()
    take_inference_failures()
