"""The topology that NCCL writes where NCCL_TOPO_DUMP_FILE points: one host, its GPUs and network interfaces."""

import re

from penstock.cluster.from_wires import assemble
from penstock.cluster.topology.link_types import LinkTypes
from penstock.cluster.topology.nccl.graph import Gpu, Net, find_gpus, way_between
from penstock.cluster.topology.nccl.xml_tree import parse_xml
from penstock.cluster.topology.one_host import repeat_host, sharing_note
from penstock.cluster.topology.options import CLASS_NOTE, UNKNOWN_KIND, Wanted, check_size, kind_notes, make_device
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError

_KINDS = {
    "0x1db1": "V100-16", "0x1db4": "V100-16", "0x1eb8": "T4", "0x2204": "RTX-3090", "0x2684": "RTX-4090",
    "0x20b0": "A100-40", "0x20f1": "A100-40", "0x20b2": "A100-80", "0x20b5": "A100-80", "0x27b8": "L4",
    "0x2330": "H100", "0x2331": "H100",
}  # fmt: skip
"""Kinds by the number of their PCI device (as in the list of the PCI ID Repository)."""
_START = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<system\b", re.DOTALL)


def looks_like_nccl(text: str) -> bool:
    """Whether it begins as NCCL's XML does."""
    return _START.match(text[:10_000]) is not None


def parse_nccl(text: str, *, name: str, where: str, wanted: Wanted) -> Cluster:
    """The cluster of the XML. Hosts are joined by what its network interfaces carry, unless --between says more."""
    wanted.refuse("NCCL's topology", "devices_per_host", "nodes")
    root = parse_xml(text, where=where)
    if root.tag != "system":
        raise InputError(f"the XML is a <{root.tag[:40]}>, not a <system>", where=where, hint="Is it NCCL's topology?")
    gpus, nets = find_gpus(root, where)
    if not gpus:
        hint = "NCCL writes it when a job with GPUs starts: NCCL_TOPO_DUMP_FILE=topology.xml"
        raise InputError("there is no GPU in it", where=where, hint=hint)
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus))
    gpus.sort(key=lambda gpu: (hosts.index(gpu.host), gpu.dev))
    check_size(len(gpus), where, "Is it the right file?")
    kinds = [wanted.kind or _KINDS.get(gpu.pci_device) or _generic(gpu) for gpu in gpus]
    between, interface, net_notes = _network([net for net in nets if net.host == hosts[0]], gpus, wanted, hosts[0])
    notes = [CLASS_NOTE, *kind_notes(set(kinds), said=wanted.kind is not None or UNKNOWN_KIND not in kinds), *net_notes]
    if len(hosts) > 1:
        return _several(name, gpus, kinds, between, wanted, notes)
    wires = _wires(gpus, wanted.links)
    return repeat_host(name, kinds, wires, wanted, where=where, between=between, interface=interface, assumptions=notes)


def _wires(gpus: list[Gpu], links: LinkTypes) -> dict[tuple[int, int], Wire]:
    return {
        (source, target): way_between(one, other, links)
        for source, one in enumerate(gpus)
        for target, other in enumerate(gpus)
        if source != target and one.host == other.host
    }


def _several(
    name: str, gpus: list[Gpu], kinds: list[str], between: Wire | None, wanted: Wanted, notes: list[str]
) -> Cluster:
    """Hosts that one NVLink domain joins are in one file."""
    wanted.refuse("a topology of several hosts", "num_hosts")
    hosts = list(dict.fromkeys(gpu.host for gpu in gpus))
    seen = dict.fromkeys(hosts, 0)
    devices = []
    for gpu, kind in zip(gpus, kinds, strict=True):
        host = f"h{hosts.index(gpu.host)}"
        devices.append(make_device(f"{host}.d{seen[gpu.host]}", host, kind))
        seen[gpu.host] += 1
    joint = wanted.between or between or wanted.links.wire("NET")
    wires = _wires(gpus, wanted.links)
    for source, one in enumerate(gpus):
        for target, other in enumerate(gpus):
            if one.host != other.host:
                by_switch = one.to_switch and other.to_switch
                wires[source, target] = way_between(one, other, wanted.links) if by_switch else joint
    return assemble(name, devices, wires, assumptions=notes)


def _generic(gpu: Gpu) -> str:
    return UNKNOWN_KIND if gpu.sm is None else f"GPU-sm{gpu.sm}"


def _network(
    nets: list[Net], gpus: list[Gpu], wanted: Wanted, host: str
) -> tuple[Wire | None, float | None, list[str]]:
    """What joins hosts, the interface that devices share if they do, and what to say of it."""
    if not nets:
        return None, None, []
    num_gpus = sum(gpu.host == host for gpu in gpus)
    latency_s = wanted.links.wire("NET").latency_s
    slowest, total = min(net.rate for net in nets), sum(net.rate for net in nets)
    if "NET" in wanted.links.given:
        slowest, total = wanted.links.wire("NET").bandwidth, wanted.links.wire("NET").bandwidth * len(nets)
    wire = Wire(bandwidth=slowest, latency_s=latency_s)
    return wire, None if len(nets) >= num_gpus else total, [sharing_note(len(nets), num_gpus)]
