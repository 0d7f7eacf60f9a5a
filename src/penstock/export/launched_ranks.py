"""The processes of an exported run: which rank runs on which device."""

from dataclasses import dataclass

from penstock.cluster import Cluster
from penstock.plan import Grid


@dataclass(frozen=True)
class LaunchedRank:
    """A process of the exported run.

    Attributes:
        rank: Its number among all processes: the pipeline rank times the number of replicas, plus the replica.
        host: The host to start it on.
        device: The device that it uses, by the cluster's name.
        local_device: The number of that device among the devices of its host.
        pipeline_rank: Its pipeline rank.
        replica: Its replica.
    """

    rank: int
    host: str
    device: str
    local_device: int
    pipeline_rank: int
    replica: int


def launched_ranks(grid: Grid, cluster: Cluster) -> tuple[LaunchedRank, ...]:
    """The processes of a run, in the order of their numbers."""
    local: dict[str, int] = {}
    seen: dict[str, int] = {}
    for device in cluster.devices:
        local[device.name] = seen[device.host] = seen.get(device.host, -1) + 1
    ranks: list[LaunchedRank] = []
    for pipeline_rank, devices in enumerate(grid.devices):
        for replica, name in enumerate(devices):
            host = cluster.devices[cluster.index[name]].host
            ranks.append(LaunchedRank(len(ranks), host, name, local[name], pipeline_rank, replica))
    return tuple(ranks)


def fits_torchrun(ranks: tuple[LaunchedRank, ...]) -> bool:
    """Whether torchrun starts these processes: each host has consecutive numbers, and its devices in order from 0."""
    hosts = list(dict.fromkeys(item.host for item in ranks))
    by_host = [[item for item in ranks if item.host == host] for host in hosts]
    in_a_row = [item.rank for items in by_host for item in items] == list(range(len(ranks)))
    in_order = all([item.local_device for item in items] == list(range(len(items))) for items in by_host)
    return in_a_row and in_order and len({len(items) for items in by_host}) == 1
