"""The machine and the versions that a self-test ran with."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

import msgspec

from penstock import __version__

PACKAGES = ("torch", "numpy", "numba", "transformers")


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """A device of this host."""

    type: str
    index: int
    kind: str
    memory_bytes: int | None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Versions, devices and settings. It has no name of the host or of the user."""

    penstock: str
    python: str
    system: str
    num_cores: int
    packages: dict[str, str]
    devices: tuple[DeviceState, ...]
    variables: dict[str, str]


def find_devices(name: str | None) -> tuple[str, int]:
    """Find the devices of this host.

    Args:
        name: Their type; None for an accelerator if there is one.

    Returns:
        The type of the devices, and their number. A CPU counts as two, because ranks share it.

    Raises:
        InputError: There is no such device.
    """
    import torch

    from penstock.device import is_accelerator, select_device

    chosen = select_device(name)
    return chosen.type, torch.accelerator.device_count() if is_accelerator(chosen) else 2


def describe_machine(device: str) -> Environment:
    """Describe this machine and its devices of a type."""
    from penstock.device import SETTINGS

    return Environment(
        penstock=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        num_cores=os.cpu_count() or 1,
        packages={name: found for name in PACKAGES if (found := _version(name))},
        devices=_devices(device),
        variables={name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _devices(device: str) -> tuple[DeviceState, ...]:
    import torch

    from penstock.device import device_kind_of, is_accelerator, total_memory_bytes

    count = torch.accelerator.device_count() if is_accelerator(torch.device(device)) else 1
    every = [torch.device(device, index) for index in range(count)] if count > 1 else [torch.device(device)]
    return tuple(
        DeviceState(type=item.type, index=index, kind=device_kind_of(item), memory_bytes=total_memory_bytes(item))
        for index, item in enumerate(every)
    )
