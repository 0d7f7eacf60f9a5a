"""Names of device kinds in profiles and clusters, and the GPU of a rank."""

import os

import torch


def device_kind_of(device: torch.device) -> str:
    """Return the kind of a device: the name of a GPU, or the number of torch's threads, as in cpu-1-thread."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device).replace(" ", "-")
    if device.type != "cpu":
        return device.type
    threads = torch.get_num_threads()
    return f"cpu-{threads}-thread{'' if threads == 1 else 's'}"


def select_gpu() -> torch.device:
    """Select a GPU of the host by LOCAL_RANK and make it the current CUDA device."""
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device
