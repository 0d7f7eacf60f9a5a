"""A part of a cluster: some of its devices, with everything between them as it was."""

from collections.abc import Iterable

import msgspec

from penstock.cluster.types import Cluster
from penstock.errors import InputError


def part_of(cluster: Cluster, places: Iterable[int]) -> Cluster:
    """The cluster with only the devices at these places, in its own order; links, hosts and interfaces stay.

    >>> from penstock.cluster.load import load_cluster
    >>> part = part_of(load_cluster("2 x 4 x T4 @ 10 GB/s / 1 GB/s"), [4, 3])
    >>> [device.name for device in part.devices], part.name
    (['h0.d3', 'h1.d0'], '2 of the 8 devices of 2 x 4 x T4 @ 10 GB/s / 1 GB/s')
    """
    wanted = sorted(set(places))
    if not wanted or not 0 <= wanted[0] <= wanted[-1] < cluster.num_devices:
        raise InputError(f"a part of {cluster.num_devices} devices cannot have the places {wanted}")
    if len(wanted) == cluster.num_devices:
        return cluster
    devices = tuple(cluster.devices[place] for place in wanted)
    names, hosts = {device.name for device in devices}, {device.host for device in devices}
    return msgspec.structs.replace(
        cluster,
        name=f"{len(devices)} of the {cluster.num_devices} devices of {cluster.name}",
        hosts=tuple(host for host in cluster.hosts if host.name in hosts),
        devices=devices,
        links=tuple(link for link in cluster.links if link.source in names and link.target in names),
        probed=cluster.probed if isinstance(cluster.probed, msgspec.UnsetType) else cluster.probed.of_part(wanted),
    )
