"""A cluster of identical hosts from the wires of one host."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.topology.options import ImportOptions, check_size, make_device
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError


def sharing_note(num_interfaces: int, num_gpus: int) -> str:
    """Return the assumption about the use of the network interfaces of a host.

    >>> sharing_note(1, 4)
    'The 4 GPUs of a host are assumed to share the one network interface evenly.'
    """
    if num_interfaces >= num_gpus:
        return f"Each GPU is assumed to have one of the {num_interfaces} network interfaces to itself."
    shared = "the one network interface" if num_interfaces == 1 else f"the {num_interfaces} network interfaces"
    return f"The {num_gpus} GPUs of a host are assumed to share {shared} evenly."


def repeat_host(
    name: str,
    kinds: Sequence[str],
    wires: Mapping[tuple[int, int], Wire],
    options: ImportOptions,
    *,
    where: str,
    between: Wire | None,
    interface: float | None = None,
    assumptions: Iterable[str] = (),
) -> Cluster:
    """Build `options.num_hosts` hosts with devices of these kinds and these wires, connected by `between`."""
    num_hosts, size = options.num_hosts or 1, len(kinds)
    check_size(num_hosts * size, where, "Use fewer --hosts.")
    joint = options.between or between
    if num_hosts > 1 and joint is None:
        hint = 'Specify it: --between "12 GB/s, 15 us".'
        raise InputError("the text has no bandwidth between hosts", where=where, hint=hint)
    devices = [
        make_device(f"h{host}.d{number}" if num_hosts > 1 else f"d{number}", f"h{host}", kind)
        for host in range(num_hosts)
        for number, kind in enumerate(kinds)
    ]
    every: dict[tuple[int, int], Wire] = {}
    for source in range(len(devices)):
        for target in range(len(devices)):
            if source // size == target // size:
                if source != target:
                    every[source, target] = wires[source % size, target % size]
            elif joint is not None:
                every[source, target] = joint
    shared = {device.host: interface for device in devices} if interface is not None and num_hosts > 1 else {}
    return cluster_from_wires(name, devices, every, interfaces=shared, assumptions=assumptions)
