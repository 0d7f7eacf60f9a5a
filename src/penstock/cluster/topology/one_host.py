"""From the wires of one host to as many hosts of its like as are wanted."""

from collections.abc import Iterable, Mapping, Sequence

from penstock.cluster.from_wires import assemble
from penstock.cluster.topology.options import Wanted, check_size, make_device
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError


def sharing_note(num_interfaces: int, num_gpus: int) -> str:
    """What is assumed of who uses which network interface of a host.

    >>> sharing_note(1, 4)
    'The 4 GPUs of a host are taken to share the one network interface evenly.'
    """
    if num_interfaces >= num_gpus:
        return f"Each GPU is taken to have one of the {num_interfaces} network interfaces to itself."
    shared = "the one network interface" if num_interfaces == 1 else f"the {num_interfaces} network interfaces"
    return f"The {num_gpus} GPUs of a host are taken to share {shared} evenly."


def repeat_host(
    name: str,
    kinds: Sequence[str],
    wires: Mapping[tuple[int, int], Wire],
    wanted: Wanted,
    *,
    where: str,
    between: Wire | None,
    interface: float | None = None,
    assumptions: Iterable[str] = (),
) -> Cluster:
    """So many hosts as wanted, each with devices of these kinds and these wires, joined by `between`."""
    num_hosts, size = wanted.num_hosts or 1, len(kinds)
    check_size(num_hosts * size, where, "Ask for fewer --hosts.")
    joint = wanted.between or between
    if num_hosts > 1 and joint is None:
        hint = 'Say what joins the hosts: --between "12 GB/s, 15 us".'
        raise InputError("the text does not say what joins hosts", where=where, hint=hint)
    devices = [
        make_device(f"h{host}.d{place}" if num_hosts > 1 else f"d{place}", f"h{host}", kind)
        for host in range(num_hosts)
        for place, kind in enumerate(kinds)
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
    return assemble(name, devices, every, interfaces=shared, assumptions=assumptions)
