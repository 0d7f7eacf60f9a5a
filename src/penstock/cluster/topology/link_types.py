"""Table of link classes, as other tools name them, with their bandwidths and latencies. Users can override entries.

Bandwidths are those that software attains in one direction, not line rates. Most are the figures that NCCL uses
(src/graph/topo.h of NCCL 2.2x), which its authors measured.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from penstock.cluster.toml import parse_wire
from penstock.cluster.types import Wire
from penstock.errors import InputError
from penstock.names import suggest_names

MAX_LINKS_OF_A_GPU = 128


class LinkType(msgspec.Struct, frozen=True, kw_only=True):
    """A class of links and the source of its figures."""

    name: str
    wire: Wire
    source: str


_INSIDE_S, _NETWORK_S = 10e-6, 15e-6
_LATENCY = "latency: rounded value for a small NCCL message"


def _type(name: str, gigabytes_per_s: float, latency_s: float, source: str) -> LinkType:
    return LinkType(name=name, wire=Wire(bandwidth=gigabytes_per_s * 1e9, latency_s=latency_s), source=source)


LINK_TYPES: tuple[LinkType, ...] = (
    _type("NV", 20.0, _INSIDE_S, f"each NVLink of 2nd to 4th generation (data sheet: 25 GB/s): NCCL; {_LATENCY}"),
    _type("NV.sm60", 18.0, _INSIDE_S, "each NVLink of a P100 (data sheet: 20 GB/s): NCCL"),
    _type("NV.sm86", 12.0, _INSIDE_S, "each NVLink of an RTX 3090 or A6000: NCCL"),
    _type("NV.sm90", 20.6, _INSIDE_S, "each NVLink of an H100 or H200: NCCL"),
    _type("NV.sm100", 40.1, _INSIDE_S, "each NVLink of a B200 (data sheet: 50 GB/s): NCCL"),
    _type("PIX", 12.0, _INSIDE_S, "one PCIe switch, generation 3 x16: NCCL; use PIX=24GB/s for generation 4"),
    _type("PXB", 12.0, _INSIDE_S, "several PCIe switches, generation 3 x16: NCCL"),
    _type("PHB", 12.0, _INSIDE_S, "through a PCIe host bridge, generation 3 x16: NCCL"),
    _type("NODE", 10.0, _INSIDE_S, "between host bridges of one NUMA node: as SYS"),
    _type("SYS", 10.0, _INSIDE_S, "between sockets, Intel Skylake (6 to 40 GB/s by generation and vendor): NCCL"),
    _type("NET", 12.0, _NETWORK_S, f"a network interface of 100 Gbit/s: NCCL; {_LATENCY}"),
    _type("BLOCK", 12.0, _NETWORK_S, "hosts of one Slurm block: as NET; set it to the bandwidth inside a block"),
    _type("SW1", 12.0, _NETWORK_S, "hosts on one switch: as NET"),
    _type("SW2", 12.0, _NETWORK_S, "hosts two switch levels apart: as SW1; lower if upper levels are oversubscribed"),
    _type("SW3", 12.0, _NETWORK_S, "hosts three switch levels apart: as SW1"),
    _type("SW4", 12.0, _NETWORK_S, "hosts four or more switch levels apart: as SW1"),
)
_BY_NAME: Mapping[str, LinkType] = MappingProxyType({item.name: item for item in LINK_TYPES})
_COUNTED = re.compile(r"NV([1-9]\d{0,2})\Z")
PCI_EFFICIENCY = 0.75
"""Fraction of the PCI Express line rate that NCCL assumes: 12 GB/s for generation 3 x16."""


class LinkTypes(msgspec.Struct, frozen=True):
    """The table with the overrides of the user."""

    overrides: Mapping[str, Wire] = MappingProxyType({})

    def wire(self, name: str) -> Wire:
        """Return the wire of a class.

        >>> LinkTypes().wire("PIX").bandwidth
        12000000000.0
        """
        return self.overrides[name] if name in self.overrides else _BY_NAME[name].wire

    def nvlinks(self, count: int, sm: int | None = None) -> Wire:
        """Return the wire of several NVLinks together, for a compute capability `sm` (90 is an H100).

        >>> LinkTypes().nvlinks(4).bandwidth
        80000000000.0
        """
        exact = f"NV{count}"
        if exact in self.overrides:
            return self.overrides[exact]
        generation = 100 if sm is not None and sm >= 100 else sm
        name = f"NV.sm{generation}" if f"NV.sm{generation}" in _BY_NAME and "NV" not in self.overrides else "NV"
        one = self.wire(name)
        return Wire(bandwidth=one.bandwidth * count, latency_s=one.latency_s)


def switch_class(levels: int) -> str:
    """Return the class of links between hosts whose lowest common switch is `levels` levels up.

    >>> switch_class(2), switch_class(7)
    ('SW2', 'SW4')
    """
    return f"SW{min(max(levels, 1), 4)}"


def parse_link_types(texts: Iterable[str]) -> LinkTypes:
    """Parse overrides of the form `CLASS=WIRE`.

    Raises:
        InputError: A text has no `=`, the class is unknown, or the wire is invalid.

    Example:
        >>> parse_link_types(["NV4=100GB/s", "SYS=20 GB/s, 8 us"]).nvlinks(4).bandwidth
        100000000000.0
    """
    overrides: dict[str, Wire] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, where = name.strip(), f"--link {text[:60]!r}"
        if not equals:
            raise InputError("must be CLASS=WIRE", where=where, hint="For example --link NV4=100GB/s.")
        if name not in _BY_NAME and not _COUNTED.match(name):
            hint = suggest_names(name, (*_BY_NAME, "NV4"))
            raise InputError(f"unknown link class {name[:40]!r}", where=where, hint=hint)
        written = parse_wire(value, key=name, where=where)
        latency_s = _BY_NAME.get(name, _BY_NAME["NV"]).wire.latency_s
        overrides[name] = (
            written.wire if written.has_latency else msgspec.structs.replace(written.wire, latency_s=latency_s)
        )
    return LinkTypes(MappingProxyType(overrides))
