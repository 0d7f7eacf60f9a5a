"""Reader of the topology that NCCL writes to NCCL_TOPO_DUMP_FILE: one host, its GPUs and network interfaces."""

import re

from penstock.cluster.from_wires import cluster_from_wires
from penstock.cluster.topology.link_types import LinkTypes
from penstock.cluster.topology.nccl.graph import Gpu, Net, find_gpus, wire_between
from penstock.cluster.topology.nccl.xml_tree import parse_xml
from penstock.cluster.topology.one_host import repeat_host, sharing_note
from penstock.cluster.topology.options import (
    CLASS_NOTE,
    UNKNOWN_KIND,
    ImportOptions,
    check_size,
    kind_notes,
    make_device,
)
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_KINDS = {
    "0x1db1": "V100-16", "0x1db4": "V100-16", "0x1eb8": "T4", "0x2204": "RTX-3090", "0x2684": "RTX-4090",
    "0x20b0": "A100-40", "0x20f1": "A100-40", "0x20b2": "A100-80", "0x20b5": "A100-80", "0x27b8": "L4",
    "0x2330": "H100", "0x2331": "H100",
}  # fmt: skip
"""Device kinds by PCI device number, from the PCI ID Repository."""
_START = re.compile(r"\s*+(?:<\?xml[^>]*+>\s*+)?+(?:<!--(?>.*?-->)\s*+)*+<system\b", re.DOTALL)


def looks_like_nccl(text: str) -> bool:
    """Return whether the text starts like NCCL's XML."""
    return _START.match(text[:10_000]) is not None


def parse_nccl(text: str, *, name: str, where: str, options: ImportOptions) -> Cluster:
    """Parse the XML. Hosts are connected at the speed of the network interfaces, unless --between overrides it."""
    options.refuse("NCCL's topology", "devices_per_host", "nodes")
    root = parse_xml(text, where=where)
    if root.tag != "system":
        hint = "Check that this is NCCL's topology."
        raise InputError(f"the root element is <{root.tag[:40]}>, not <system>", where=where, hint=hint)
    gpus, nets = find_gpus(root, where)
    if not gpus:
        hint = "Start a job with GPUs and NCCL_TOPO_DUMP_FILE=topology.xml to write it."
        raise InputError("the topology has no GPU", where=where, hint=hint)
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus))
    gpus.sort(key=lambda gpu: (hosts.index(gpu.host), gpu.dev))
    check_size(len(gpus), where, "Check that this is the right file.")
    kinds = [options.kind or _KINDS.get(gpu.pci_device) or _generic(gpu) for gpu in gpus]
    between, interface, net_notes = _network([net for net in nets if net.host == hosts[0]], gpus, options, hosts[0])
    notes = [
        CLASS_NOTE,
        *kind_notes(set(kinds), is_specified=options.kind is not None or UNKNOWN_KIND not in kinds),
        *net_notes,
    ]
    if len(hosts) > 1:
        return _several(name, gpus, kinds, between, options, notes)
    wires = _wires(gpus, options.links)
    return repeat_host(
        name, kinds, wires, options, where=where, between=between, interface=interface, assumptions=notes
    )


def _wires(gpus: list[Gpu], links: LinkTypes) -> dict[tuple[int, int], Wire]:
    return {
        (source, target): wire_between(one, other, links)
        for source, one in enumerate(gpus)
        for target, other in enumerate(gpus)
        if source != target and one.host == other.host
    }


def _several(
    name: str, gpus: list[Gpu], kinds: list[str], between: Wire | None, options: ImportOptions, notes: list[str]
) -> Cluster:
    """Build a cluster of several hosts: a file contains all hosts of an NVLink domain."""
    options.refuse("a topology of several hosts", "num_hosts")
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus))
    seen = dict.fromkeys(hosts, 0)
    devices = []
    for gpu, kind in zip(gpus, kinds, strict=True):
        host = f"h{hosts.index(gpu.host)}"
        devices.append(make_device(f"{host}.d{seen[gpu.host]}", host, kind))
        seen[gpu.host] += 1
    joint = options.between or between or options.links.wire("NET")
    wires = _wires(gpus, options.links)
    for source, one in enumerate(gpus):
        for target, other in enumerate(gpus):
            if one.host != other.host:
                by_switch = one.to_switch and other.to_switch
                wires[source, target] = wire_between(one, other, options.links) if by_switch else joint
    return cluster_from_wires(name, devices, wires, assumptions=notes)


def _generic(gpu: Gpu) -> str:
    return UNKNOWN_KIND if gpu.sm is None else f"GPU-sm{gpu.sm}"


def _network(
    nets: list[Net], gpus: list[Gpu], options: ImportOptions, host: str
) -> tuple[Wire | None, float | None, list[str]]:
    """Return the wire between hosts, the bandwidth of the shared interface if there is one, and notes about it."""
    if not nets:
        return None, None, []
    num_gpus = sum(gpu.host == host for gpu in gpus)
    latency_s = options.links.wire("NET").latency_s
    slowest, total = min(net.rate for net in nets), sum(net.rate for net in nets)
    if "NET" in options.links.overrides:
        slowest, total = options.links.wire("NET").bandwidth, options.links.wire("NET").bandwidth * len(nets)
    wire = Wire(bandwidth=slowest, latency_s=latency_s)
    return wire, None if len(nets) >= num_gpus else total, [sharing_note(len(nets), num_gpus)]
