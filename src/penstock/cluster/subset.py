"""A subset of a cluster: some of its devices, with unchanged links between them."""

from collections.abc import Iterable

import msgspec

from penstock.cluster.types import Cluster
from penstock.errors import InputError


def select_devices(cluster: Cluster, positions: Iterable[int]) -> Cluster:
    """Return the cluster with only some of its devices, and the hosts and links between them.

    Args:
        cluster: The cluster.
        positions: Positions of the devices to keep. Their order in the cluster does not change.

    Raises:
        InputError: There are no positions, or one is out of range.

    Example:
        >>> from penstock.cluster.load import load_cluster
        >>> part = select_devices(load_cluster("2 x 4 x T4 @ 10 GB/s / 1 GB/s"), [4, 3])
        >>> [device.name for device in part.devices], part.name
        (['h0.d3', 'h1.d0'], '2 of the 8 devices of 2 x 4 x T4 @ 10 GB/s / 1 GB/s')
    """
    kept = sorted(set(positions))
    if not kept or not 0 <= kept[0] <= kept[-1] < cluster.num_devices:
        raise InputError(f"positions must be at least one index from 0 to {cluster.num_devices - 1}, not {kept}")
    if len(kept) == cluster.num_devices:
        return cluster
    devices = tuple(cluster.devices[position] for position in kept)
    names, hosts = {device.name for device in devices}, {device.host for device in devices}
    return msgspec.structs.replace(
        cluster,
        name=f"{len(devices)} of the {cluster.num_devices} devices of {cluster.name}",
        hosts=tuple(host for host in cluster.hosts if host.name in hosts),
        devices=devices,
        links=tuple(link for link in cluster.links if link.source in names and link.target in names),
        probed=cluster.probed if isinstance(cluster.probed, msgspec.UnsetType) else cluster.probed.subset(kept),
    )
