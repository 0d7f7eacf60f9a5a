"""A tiny model with the files that `penstock train` needs: script, profile, cluster and plan for two ranks."""

from pathlib import Path

import penstock

SCRIPT = """
import os, signal, time
import torch
from torch import nn

def loss(output, targets):
    return (output - targets).square().mean()

def make_model():
    layers = nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
    return nn.Sequential(*layers), torch.ones(4, 6), loss, torch.ones(4, 2)

def make_batches(num_rows):
    print("batches of", num_rows)
    for step in range(1000):
        FAULT
        yield torch.randn(num_rows, 6), torch.randn(num_rows, 2)

def make_optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
"""
CLUSTER = 'hosts = 1\ndevices_per_host = 2\nkind = "cpu-1-thread"\nmemory = "1 GiB"\ninside = "1 GB/s, 60 us"\n'
TWO_HOSTS = (
    'hosts = 2\ndevices_per_host = 1\nkind = "cpu-1-thread"\nmemory = "1 GiB"\n'
    'inside = "1 GB/s, 60 us"\nbetween = "1 GB/s, 100 us"\n'
)
PARAMETER_BYTES = (448, 0, 0, 1088, 0, 136)
"""Of the layers of the script's model, in fp32."""
IS_RANK_1 = 'os.environ.get("RANK") == "1"'


def write_problem(path: Path, cluster_text: str = CLUSTER) -> None:
    """Write a plan for two ranks with its profile and cluster. The profile has fixed times."""
    times = [
        penstock.Times(
            kind="cpu-1-thread", micro_batch_size=4, forward_s=1e-3, input_grad_s=1e-3, weight_grad_s=1e-3, step_s=1e-4
        )
    ]
    units = [
        penstock.Unit(
            name=str(number),
            parameter_bytes=parameter_bytes,
            sizes=(penstock.Sizes(micro_batch_size=4, cut_bytes=256, saved_bytes=512),),
            times=tuple(times),
        )
        for number, parameter_bytes in enumerate(PARAMETER_BYTES)
    ]
    profile = penstock.Profile(name="tiny", micro_batch_size=4, units=tuple(units), input_bytes=96)
    penstock.save_profile(profile, path / "profile.json")
    (path / "cluster.toml").write_text(cluster_text)
    cluster = penstock.load_cluster(str(path / "cluster.toml"))
    plan = penstock.plan(
        profile,
        cluster,
        3,
        planner="balanced",
        schedule="1f1b",
        profile_source="profile.json",
        cluster_source="cluster.toml",
    )
    penstock.save_plan(plan, path / "plan.json")


def write_script(path: Path, fault: str = "pass") -> str:
    """Write the model's script, with a statement that fails in its batches."""
    path.write_text(SCRIPT.replace("FAULT", fault))
    return str(path)
