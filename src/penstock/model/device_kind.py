"""What a device is called in profiles and clusters."""

import os

import torch


def kind_of(device: torch.device) -> str:
    """The kind of a device: of a GPU its name, of the CPU the threads that torch uses, as in cpu-1-thread."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device).replace(" ", "-")
    if device.type != "cpu":
        return device.type
    threads = torch.get_num_threads()
    return f"cpu-{threads}-thread{'' if threads == 1 else 's'}"


def own_gpu() -> torch.device:
    """A GPU of this rank's own, of those of its host, which is what "cuda" means from now on."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
