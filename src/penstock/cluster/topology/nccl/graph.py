"""GPUs, NVLinks and network interfaces in NCCL's tree of CPUs and PCI devices, and the path between two GPUs."""

import re
from xml.etree.ElementTree import Element

import msgspec

from penstock.cluster.topology.link_types import MAX_LINKS_OF_A_GPU, PCI_EFFICIENCY, LinkTypes
from penstock.cluster.types import Wire
from penstock.errors import InputError

MAX_SPEED = 10_000_000
"""Highest speed of a network interface, in Mbit/s."""
_RATE = re.compile(r"\s*([0-9]{1,4}(?:\.[0-9]{1,3})?)\s*GT/s")
_SWITCH = "0x0680"
"""PCI devices of this class are NVSwitches, or the bridges of a CPU with NVLink."""
_CPU_CLASS = "0x068001"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU."""

    dev: int
    host: str
    sm: int | None
    pci_device: str
    """PCI device number, which identifies the kind."""
    busid: str
    cpu: int
    """Index of its CPU in the file."""
    bridges: tuple[str, ...]
    """Bus ids from the CPU down to the GPU."""
    pci_rates: tuple[float, ...]
    """Bytes per second of each of them; inf where it is not specified."""
    to_switch: int
    """NVLinks to switches."""
    to_gpus: tuple[tuple[str, int], ...]
    """NVLinks to other GPUs, by their bus ids."""


class Net(msgspec.Struct, frozen=True, kw_only=True):
    """One port of a network interface."""

    host: str
    name: str
    rate: float


def find_gpus(root: Element, where: str) -> tuple[list[Gpu], list[Net]]:
    """Return the GPUs and network interfaces, in the order of the file."""
    gpus: list[Gpu] = []
    nets: list[Net] = []
    for index, cpu in enumerate(root.iter("cpu")):
        host = cpu.get("host_hash", "")
        waiting: list[tuple[Element, tuple[Element, ...]]] = [(cpu, ())]
        while waiting:
            element, above = waiting.pop()
            if element.tag == "gpu":
                gpus.append(_gpu(element, above, host, index, where))
            elif element.tag == "net":
                nets.append(_net(element, host, where))
            deeper = (*above, element) if element.tag == "pci" else above
            waiting += [(child, deeper) for child in reversed(element)]
    return gpus, nets


def wire_between(one: Gpu, other: Gpu, links: LinkTypes) -> Wire:
    """Return the wire from one GPU to another of its host: NVLink if there is one, else the PCI path."""
    direct = sum(count for target, count in one.to_gpus if target == other.busid)
    if direct:
        return links.nvlinks(direct, one.sm)
    if one.to_switch and other.to_switch:
        return links.nvlinks(min(one.to_switch, other.to_switch), one.sm)
    if one.cpu != other.cpu:
        name, common = "SYS", 0
    else:
        common = 0
        while common < min(len(one.bridges), len(other.bridges)) and one.bridges[common] == other.bridges[common]:
            common += 1
        hops = len(one.bridges) + len(other.bridges) - 2 * common
        name = "PHB" if common == 0 else "PIX" if hops <= 2 else "PXB"
    wire = links.wire(name)
    pci = min((*one.pci_rates[common:], *other.pci_rates[common:]), default=float("inf"))
    if name in links.overrides or pci == float("inf"):
        return wire
    return Wire(bandwidth=min(pci, wire.bandwidth) if name == "SYS" else pci, latency_s=wire.latency_s)


def _gpu(element: Element, above: tuple[Element, ...], host: str, cpu: int, where: str) -> Gpu:
    if not above:
        raise InputError("a GPU is not inside a PCI device", where=where, hint="Dump the topology again.")
    to_switch, to_gpus = 0, []
    for link in element.iter("nvlink"):
        count = _number(link, "count", 1, MAX_LINKS_OF_A_GPU, where) or 1
        kind = link.get("tclass", "")
        if kind.startswith(_SWITCH) and kind != _CPU_CLASS:
            to_switch += count
        elif kind != _CPU_CLASS:
            to_gpus.append((link.get("target", "").lower(), count))
    if to_switch > MAX_LINKS_OF_A_GPU:
        raise InputError(f"a GPU has {to_switch:,} NVLinks", where=where, hint="Dump the topology again.")
    return Gpu(
        dev=_number(element, "dev", 0, 1 << 20, where) or 0,
        host=host,
        sm=_number(element, "sm", 0, 10_000, where),
        pci_device=above[-1].get("device", "").lower(),
        busid=above[-1].get("busid", "").lower(),
        cpu=cpu,
        bridges=tuple(item.get("busid", "") for item in above),
        pci_rates=tuple(_pci_rate(item, where) for item in above),
        to_switch=to_switch,
        to_gpus=tuple(to_gpus),
    )


def _net(element: Element, host: str, where: str) -> Net:
    speed = _number(element, "speed", 1, MAX_SPEED, where)
    return Net(host=host, name=element.get("name", "?"), rate=(speed or 100_000) * 125e3)


def _pci_rate(element: Element, where: str) -> float:
    """Return the bandwidth of the link above a PCI device."""
    match = _RATE.match(element.get("link_speed", ""))
    lanes = _number(element, "link_width", 0, 64, where)
    if match is None or not lanes or not float(match[1]):
        return float("inf")
    return float(match[1]) * 1e9 / 8 * lanes * PCI_EFFICIENCY


def _number(element: Element, name: str, least: int, most: int, where: str) -> int | None:
    text = element.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"-?[0-9]{1,12}", text.strip()) or not least <= int(text) <= most:
        what = f"{name} of <{element.tag[:40]}> must be a number from {least:,} to {most:,}, not {text[:40]!r}"
        raise InputError(what, where=where, hint="Dump the topology again.")
    return int(text)
