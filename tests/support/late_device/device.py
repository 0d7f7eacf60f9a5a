"""Loads the test device, configures it, and reads what it has recorded."""

import atexit
import importlib.machinery
import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist

from tests.support.late_device import torch_module
from tests.support.late_device.build import NAME as MODULE
from tests.support.late_device.build import build

NAME = "late"
BACKEND = "strict"


Pace = Literal["eager", "lazy", "random"]
PACES: tuple[Pace, ...] = ("eager", "lazy", "random")


@dataclass(frozen=True)
class Settings:
    """Settings of the device."""

    pace: Pace = "eager"
    """When work runs: at once, only as far as somebody waits for it, or after random delays."""
    seed: int = 0
    """Of random delays."""
    num_queues: int = 32
    """Hardware queues that streams share. The jobs of a queue run in the order in which they were queued."""
    limit_bytes: int = 4 << 30
    max_delay_us: int = 300
    """Longest random delay."""
    checks_races: bool = True


class HostWait(NamedTuple):
    """One time that the host waited for the device."""

    kind: str
    """"synchronize", "copy", "read", "poll", "reclaim" or "wait with a timeout"."""
    name: str
    """The operator or the call."""
    place: str
    """The innermost frames of Python."""
    is_main_thread: bool


@cache
def load() -> Any:
    """Compile the device if that is necessary, register it with torch, and return its extension module."""
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(build()))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    extension = importlib.util.module_from_spec(spec)
    loader.exec_module(extension)
    untyped: Any = torch
    untyped.utils.rename_privateuse1_backend(NAME)
    extension.register_device()
    untyped._register_device_module(NAME, torch_module.make(extension))
    untyped.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dist.Backend.register_backend(BACKEND, _make_group, devices=[NAME])
    atexit.register(extension.stop)
    return extension


def is_loaded() -> bool:
    """Return whether this process has the device."""
    return load.cache_info().currsize > 0


def configure(settings: Settings) -> None:
    """Change the settings of the device. It must be idle."""
    load().configure(
        settings.pace,
        settings.seed,
        settings.num_queues,
        settings.limit_bytes,
        settings.max_delay_us,
        settings.checks_races,
    )


def take_races() -> list[str]:
    """Return the accesses that were not ordered, since the last call."""
    return list(load().take_races())


def take_host_waits() -> list[HostWait]:
    """Return where the host waited for the device, since the last call."""
    return [HostWait(*row) for row in load().take_host_waits()]


def take_inference_failures() -> list[str]:
    """Return the operators that ran at once because their results could not be inferred, since the last call."""
    return list(load().take_inference_failures())


def _make_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
    return load().make_strict_group(gloo, timeout.total_seconds())
