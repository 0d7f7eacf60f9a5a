"""The matrix of nvidia-smi, from terminals, logs and pasted text."""

import numpy as np
import pytest

from penstock.cluster.topology.link_types import parse_link_types
from penstock.cluster.topology.nvidia_smi import looks_like_nvidia_smi, parse_nvidia_smi
from penstock.cluster.topology.options import ImportOptions
from penstock.cluster.types import Cluster, Wire
from penstock.errors import InputError
from tests.support.topology_texts import DGX_A100, NCCL_PCI, SLURM_TREE, V100_CUBE, WORKSTATION_MIG


def parse(text: str, **given: object) -> Cluster:
    return parse_nvidia_smi(text, name="host", where="topo.txt", options=ImportOptions(**given))  # type: ignore[arg-type]


def test_tabs_and_colours() -> None:
    cluster = parse(DGX_A100, kind="A100-40")
    assert [device.name for device in cluster.devices] == ["d0", "d1", "d2", "d3"]
    assert cluster.devices[0].memory_bytes == 40_000_000_000
    assert cluster.hosts[0].inside == Wire(bandwidth=240e9, latency_s=10e-6)
    assert cluster.links == ()
    assert any("2 network interfaces" in note for note in cluster.assumptions)


def test_pasted_with_spaces() -> None:
    cluster = parse(V100_CUBE, kind="V100-16")
    rates = cluster.bandwidth / 1e9
    assert rates[0, 1:].tolist() == [20, 20, 40, 40, 10, 10, 10]
    assert rates[6].tolist() == [10, 10, 20, 10, 20, 40, np.inf, 40]
    assert (rates == rates.T).all()


def test_mig_and_old_names_and_no_kind() -> None:
    cluster = parse(WORKSTATION_MIG)
    assert cluster.num_devices == 3
    assert cluster.bandwidth[1, 2] == cluster.bandwidth[2, 1] == 10e9
    assert cluster.bandwidth[0, 1] == 12e9
    assert {device.kind for device in cluster.devices} == {"GPU"}
    assert any("--kind" in note for note in cluster.assumptions)


def test_links_can_be_overridden() -> None:
    links = parse_link_types(["NV12=300 GB/s, 3 us", "SYS=20GB/s"])
    assert parse(DGX_A100, links=links).hosts[0].inside == Wire(bandwidth=300e9, latency_s=3e-6)
    assert parse(V100_CUBE, links=links).bandwidth[0, 5] == 20e9


def test_several_hosts() -> None:
    cluster = parse(DGX_A100, kind="A100-40", num_hosts=3, between=Wire(bandwidth=25e9, latency_s=2e-5))
    assert cluster.num_devices == 12
    assert cluster.devices[5].name == "h1.d1"
    assert cluster.bandwidth[0, [1, 4]].tolist() == [240e9, 25e9]
    with pytest.raises(InputError, match="no bandwidth between hosts"):
        parse(DGX_A100, num_hosts=2)


def test_one_gpu() -> None:
    assert parse("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").num_devices == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no line has the columns"),
        ("GPU0 GPU1 CPU Affinity\nGPU0 X NV4 0\n", "row of GPU1 is missing"),
        ("GPU0 GPU1\nGPU0 X NV4\nGPU0 X NV4\n", "topo.txt:3: duplicate row GPU0"),
        ("GPU0 GPU1\nGPU0 X\n", "has 1 of 2 cells"),
        ("GPU0 GPU0\n", "duplicate column"),
        ("GPU0 GPU1\nGPU0 X FAST\nGPU1 FAST X\n", "unknown link class 'FAST'"),
        ("GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X\n", "unknown link class 'NV0'"),
        ("GPU0 GPU1\nGPU0 X NV999\nGPU1 NV999 X\n", "unknown link class 'NV999'"),
    ],
)
def test_invalid_inputs(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "nvidia-smi topo -m" in caught.value.hint or "Known classes" in caught.value.hint


def test_looks_like() -> None:
    assert all(looks_like_nvidia_smi(text) for text in (DGX_A100, V100_CUBE, WORKSTATION_MIG))
    assert not any(looks_like_nvidia_smi(text) for text in (NCCL_PCI, SLURM_TREE, "", "GPU0 is hot"))


def test_colours_whose_first_character_was_lost() -> None:
    assert parse(DGX_A100.replace("\x1b", "")) == parse(DGX_A100)


def test_nvlinks_are_those_of_the_kind() -> None:
    # 12 NVLinks of 20 GB/s each, of 20.6 GB/s in an H100, of 12 GB/s in an RTX 3090.
    rates = [parse(DGX_A100, kind=kind).hosts[0].inside.bandwidth for kind in ("A100-40", "H100", "RTX-3090")]
    assert rates == pytest.approx([240e9, 247.2e9, 144e9])


def test_classes_are_listed_in_the_assumptions() -> None:
    first, *others = parse(WORKSTATION_MIG).assumptions
    assert "not measured: NODE, SYS: 10.0 GB/s, 10.0 us; PHB: 12.0 GB/s, 10.0 us (change them with --link" in first
    assert any("divided into MIG devices: each GPU counts as one device" in note for note in others)
    # Overridden classes are not listed.
    links = parse_link_types(["PHB=24GB/s", "NV=25GB/s"])
    assert "PHB" not in parse(WORKSTATION_MIG, links=links).assumptions[0]
    assert not any("nothing is measured" in note for note in parse(DGX_A100, links=links).assumptions)
    # Only several hosts need a connection.
    between = Wire(bandwidth=25e9)
    assert not any("specify it" in note for note in parse(DGX_A100, num_hosts=2, between=between).assumptions)


def test_interfaces_that_are_fewer_than_gpus_are_shared() -> None:
    between = Wire(bandwidth=12e9, latency_s=15e-6)
    cluster = parse(DGX_A100, num_hosts=2, between=between)
    # Four GPUs, two interfaces of 12 GB/s.
    assert [host.interface_bandwidth for host in cluster.hosts] == [24e9, 24e9]
    assert any("share the 2 network interfaces evenly; --between applies to" in note for note in cluster.assumptions)
    lone = DGX_A100.replace("\tNIC1\t", "\t").replace("\tSYS\t48", "\t48").replace("\tPXB\t16", "\t16")
    assert [host.interface_bandwidth for host in parse(lone, num_hosts=2, between=between).hosts] == [12e9, 12e9]
    # As many interfaces as GPUs, or none: an assumption is recorded.
    pair = "GPU0 GPU1 NIC0 NIC1 CPU\nGPU0 X NV4 PIX SYS\nGPU1 NV4 X SYS PIX\n"
    own = parse(pair, num_hosts=2, between=between)
    assert own.hosts[0].interface_bandwidth is None
    assert any("one of the 2 network interfaces to itself" in note for note in own.assumptions)
    none = parse(WORKSTATION_MIG, num_hosts=2, between=between)
    assert none.hosts[0].interface_bandwidth is None
    assert any("has no network interface" in note for note in none.assumptions)
    # A single host needs no network.
    assert parse(DGX_A100).hosts[0].interface_bandwidth is None
