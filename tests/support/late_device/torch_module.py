"""The module `torch.late`: what torch and its users expect of the module of a device."""

import types
from types import SimpleNamespace
from typing import Any

import torch

KIND = "late-test-device"


def make(extension: Any) -> types.ModuleType:
    """Return the device module."""
    module: Any = types.ModuleType("torch.late")
    generator = extension.default_generator()

    class DeviceContext:
        """The device is always the current one."""

        def __init__(self, _device: Any = None) -> None:
            self.idx = 0

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    module.device = DeviceContext
    module.default_generators = (generator,)
    module.init = module._lazy_init = lambda: None
    module.is_initialized = module.is_available = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda _device: None
    module.get_device_name = lambda _device=None: KIND
    module.get_device_properties = lambda _device=None: SimpleNamespace(name=KIND, uuid="")
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    module.synchronize = lambda device=None: torch.accelerator.synchronize()
    module.current_stream = lambda device=None: torch.accelerator.current_stream()
    module.Stream = _stream_of_device
    module.Event = _event_of_device
    module.manual_seed = module.manual_seed_all = generator.manual_seed
    module.seed = module.seed_all = generator.seed
    module.initial_seed = generator.initial_seed
    module.get_rng_state = lambda device=None: generator.get_state()
    module.set_rng_state = lambda state, device=None: generator.set_state(state)
    module.empty_cache = torch.accelerator.empty_cache
    return module  # type: ignore[no-any-return]


def _stream_of_device(**options: Any) -> torch.Stream:
    return torch.Stream(device="late:0", **options)


def _event_of_device(enable_timing: bool = False, **options: Any) -> torch.Event:
    return torch.Event(device="late:0", enable_timing=enable_timing, **options)
