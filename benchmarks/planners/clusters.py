"""The clusters on which the planners are compared."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.instances import regions, sailor
from penstock.cluster import Cluster, Device, Host, Link, Wire, load_cluster
from penstock.profile import Profile

CLUSTERS = ("4 fast", "8 fast", "2 x 4", "4 x 4", "4 x 4 shared", "regions", "lab", "irregular")
ONE_HOST = ("4 fast", "8 fast")

_SPECS = {
    "4 fast": "4 x X @ 100 GB/s",
    "8 fast": "8 x X @ 100 GB/s",
    "2 x 4": "2 x 4 x X @ 100 GB/s / 1.25 GB/s",
    "4 x 4": "4 x 4 x X @ 100 GB/s / 1.25 GB/s",
}


def cluster_for(name: str, profile: Profile, folder: Path) -> Cluster:
    """The cluster with this name. Only `lab` depends on the profile."""
    if name in _SPECS:
        return load_cluster(_SPECS[name])
    if name == "4 x 4 shared":
        return shared(load_cluster(_SPECS["4 x 4"]), 1.25e9)
    if name == "regions":
        return spread(folder)
    if name == "irregular":
        return irregular()
    return lab(lab_speeds(folder), profile)


def shared(cluster: Cluster, interface_bandwidth: float) -> Cluster:
    """The cluster with one network interface for all devices of a host."""
    hosts = tuple(msgspec.structs.replace(host, interface_bandwidth=interface_bandwidth) for host in cluster.hosts)
    return msgspec.structs.replace(cluster, name=f"{cluster.name}, shared", hosts=hosts)


@cache
def lab_speeds(folder: Path) -> dict[str, float]:
    """The device kinds of opt350's profile, and their speeds relative to the first."""
    profile = sailor(folder / "mixed" / "opt350.json")
    seconds = {
        kind: sum(
            times.forward_s + times.input_grad_s + times.weight_grad_s
            for unit in profile.units
            for times in unit.times
            if times.kind == kind and times.micro_batch_size == profile.micro_batch_size
        )
        for kind in profile.kinds
    }
    return {kind: seconds[profile.kinds[0]] / value for kind, value in seconds.items()}


def lab(speeds: dict[str, float], profile: Profile) -> Cluster:
    """Two of each kind, 12 GB/s inside pairs and 1.25 GB/s between.

    A profile that was measured on these kinds keeps its times. Any other profile is assumed to be of the first kind,
    and the other kinds are slower by the same factors as for opt350.
    """
    measured = set(speeds) <= set(profile.kinds)
    devices = tuple(
        Device(name=f"{kind}.{index}", host=kind, kind=kind, speed=1.0 if measured else speed)
        for kind, speed in speeds.items()
        for index in range(2)
    )
    hosts = tuple(Host(name=kind, inside=Wire(bandwidth=12e9)) for kind in speeds)
    return Cluster(name="lab", hosts=hosts, devices=devices, between=Wire(bandwidth=1.25e9))


def spread(folder: Path, num_devices: int = 16) -> Cluster:
    """Devices in ten regions, one host per region; 12.5 GB/s inside."""
    wires = {pair: Wire(bandwidth=rate, latency_s=latency) for pair, (latency, rate) in regions(folder).items()}
    names = sorted({name for pair in wires for name in pair})
    homes = [names[index % len(names)] for index in range(num_devices)]
    devices = tuple(Device(name=f"{home}.{index}", host=home, kind="X") for index, home in enumerate(homes))
    links = tuple(
        Link(source=a.name, target=b.name, wire=wires[a.host, b.host])
        for a in devices
        for b in devices
        if a.host != b.host
    )
    inside = Wire(bandwidth=12.5e9)
    hosts = tuple(Host(name=name, inside=inside) for name in names)
    return Cluster(name="regions", hosts=hosts, devices=devices, between=inside, links=links)


def irregular(num_devices: int = 12, seed: int = 12) -> Cluster:
    """A cluster whose links and devices all differ."""
    random = np.random.default_rng(seed)
    devices = tuple(
        Device(name=f"d{index}", host="h", kind="X", speed=float(random.uniform(0.5, 1.5)))
        for index in range(num_devices)
    )
    wire = Wire(bandwidth=1e9)
    return Cluster(
        name="irregular",
        hosts=(Host(name="h", inside=wire),),
        devices=devices,
        between=wire,
        links=random_links(devices, random, bandwidth=(10**8.5, 10**11), latency_s=(0.0, 1e-4)),
    )


def random_links(
    devices: tuple[Device, ...],
    random: np.random.Generator,
    *,
    bandwidth: tuple[float, float],
    latency_s: tuple[float, float],
) -> tuple[Link, ...]:
    """Random links between all devices, with log-uniform bandwidths."""
    low, high = np.log10(bandwidth)
    return tuple(
        Link(
            source=a.name,
            target=b.name,
            wire=Wire(bandwidth=float(10 ** random.uniform(low, high)), latency_s=float(random.uniform(*latency_s))),
        )
        for a in devices
        for b in devices
        if a.name != b.name
    )
