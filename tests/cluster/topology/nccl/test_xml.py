"""NCCL's topology: the connection of two GPUs in its tree."""

import numpy as np
import pytest

from penstock.cluster.topology.link_types import parse_link_types
from penstock.cluster.topology.nccl.xml import looks_like_nccl, parse_nccl
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError
from tests.support.topology_texts import DGX_A100, NCCL_PCI, NCCL_SWITCHED


def parse(text: str, **given: object) -> Cluster:
    return parse_nccl(text, name="host", where="topo.xml", options=ImportOptions(**given))  # type: ignore[arg-type]


def test_switches_of_nvlink() -> None:
    cluster = parse(NCCL_SWITCHED)
    assert [device.kind for device in cluster.devices] == ["A100-40"] * 3
    assert cluster.hosts[0].inside.bandwidth == 12 * 20e9
    assert cluster.links == ()


def test_direct_links_and_pci() -> None:
    cluster = parse(NCCL_PCI)
    assert [device.kind for device in cluster.devices] == ["V100-16", "V100-16", "T4", "T4", "GPU-sm89"]
    rates = cluster.bandwidth / 1e9
    # Two NVLinks; a switch with one side x8 (6 GB/s); the host bridge at generation 3 x16; the other socket.
    assert rates[0].tolist() == [np.inf, 40, 6, 12, 10]
    assert rates[3].tolist() == [12, 12, 6, np.inf, 10]
    assert (rates == rates.T).all()


def test_hosts_are_joined_by_the_interfaces() -> None:
    cluster = parse(NCCL_SWITCHED, num_hosts=2)
    assert cluster.between == Wire(bandwidth=25e9, latency_s=15e-6)
    # Three GPUs, one interface.
    assert [host.interface_bandwidth for host in cluster.hosts] == [25e9, 25e9]
    cluster = parse(NCCL_SWITCHED, num_hosts=2, between=Wire(bandwidth=5e9))
    assert cluster.between.bandwidth == 5e9
    with pytest.raises(InputError, match="no bandwidth between hosts"):
        parse(NCCL_PCI, num_hosts=2)


def test_an_interface_for_each() -> None:
    line = next(line for line in NCCL_SWITCHED.splitlines() if "<net " in line)
    cluster = parse(NCCL_SWITCHED.replace(line, line * 3), num_hosts=2)
    assert [host.interface_bandwidth for host in cluster.hosts] == [None, None]


def test_interfaces_of_different_speeds() -> None:
    # A link between hosts is as fast as the slowest interface; a shared interface has the sum.
    line = next(line for line in NCCL_SWITCHED.splitlines() if "<net " in line)
    slower = NCCL_SWITCHED.replace(line, line + line.replace('speed="200000"', 'speed="40000"'))
    cluster = parse(slower, num_hosts=2)
    assert cluster.between.bandwidth == 5e9
    assert [host.interface_bandwidth for host in cluster.hosts] == [30e9, 30e9]
    overridden = parse(slower, num_hosts=2, links=parse_link_types(["NET=7GB/s"]))
    assert overridden.between.bandwidth == 7e9
    assert [host.interface_bandwidth for host in overridden.hosts] == [14e9, 14e9]


def test_hosts_of_one_nvlink_domain() -> None:
    one, other = NCCL_SWITCHED.split('numaid="1"')
    cluster = parse(one.replace('<cpu host_hash="0x5d1f" affinity', "") + 'numaid="1"' + other)
    assert len(cluster.hosts) == 1
    head, _, tail = NCCL_SWITCHED.rpartition("0x5d1f")
    cluster = parse(head + "0x7777" + tail)
    assert [device.name for device in cluster.devices] == ["h0.d0", "h0.d1", "h1.d0"]
    assert cluster.between.bandwidth == 240e9


def test_links_can_be_overridden() -> None:
    links = parse_link_types(["NV=22GB/s", "SYS=30GB/s", "PHB=9GB/s"])
    cluster = parse(NCCL_PCI, links=links)
    assert cluster.bandwidth[0, [1, 3, 4]].tolist() == [44e9, 9e9, 30e9]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<system/>", "has no GPU"),
        ("<graphs/>", "not <system>"),
        ("<system>", "broken XML: no element found"),
        ("", "broken XML"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><system>&a;</system>', "declares a document type"),
        ("<system>" + "<pci>" * 100, "nested too deeply"),
        ('<system><cpu><pci><gpu dev="many"/></pci></cpu></system>', "dev of <gpu> must be a number"),
        ('<system><cpu><gpu dev="0"/></cpu></system>', "not inside a PCI device"),
        ('<system><cpu><pci><gpu><nvlink count="9999"/></gpu></pci></cpu></system>', "count of <nvlink>"),
    ],
)
def test_invalid_inputs(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert caught.value.where.startswith("topo.xml")


def test_looks_like() -> None:
    assert looks_like_nccl(NCCL_PCI)
    assert looks_like_nccl(NCCL_SWITCHED)
    assert not looks_like_nccl(DGX_A100)
    assert not looks_like_nccl("<html></html>")
