"""Clusters from the result of a probe, against manual results."""

from datetime import UTC, datetime

import msgspec
import pytest

from penstock.cluster.toml.reader import parse_cluster
from penstock.cluster.toml.writer import write_cluster
from penstock.cluster.types import Wire
from penstock.probe.cluster_from_probe import build_cluster, wires_of
from penstock.probe.relative_speeds import find_slow_ranks, speeds_of
from penstock.probe.types import Fit, Flow, FlowSet, MeasuredLink, ProbeResult, RankInfo

DATE = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def link(source: int, target: int, bandwidth: float, latency_s: float = 1e-4, residual: float = 0.01) -> MeasuredLink:
    fit = Fit(bandwidth=bandwidth, latency_s=latency_s, residual=residual, bandwidth_error=0.01)
    return MeasuredLink(source=source, target=target, fit=fit, num_bytes=1000)


def info(rank: int, host: str, flops: float = 1e9, kind: str = "cpu-1-thread") -> RankInfo:
    return RankInfo(rank=rank, host=host, kind=kind, memory_bytes=8_000_000_000, machine="one", flops_per_s=flops)


def result() -> ProbeResult:
    links = [link(a, b, 50e6 + 1e5 * (a + b)) for a in range(3) for b in range(3) if a != b and {a, b} != {0, 1}]
    links += [link(0, 1, 900e6, 3e-5), link(1, 0, 450e6, 3e-5, residual=0.2)]
    flow_set = FlowSet(
        host="beta",
        outgoing=True,
        flows=(Flow(source=2, target=0, alone=50e6, busy=25.1e6), Flow(source=2, target=1, alone=50e6, busy=25.2e6)),
    )
    return ProbeResult(
        rank_infos=(info(0, "alpha"), info(1, "alpha", 1.02e9), info(2, "beta", 0.5e9)),
        links=tuple(links),
        flow_sets=(flow_set,),
        backend="gloo",
        num_rounds=5,
        num_bytes=8000,
        seconds=2.0,
    )


def test_cluster() -> None:
    cluster = build_cluster(result(), "lab", DATE)
    assert [(device.name, device.host) for device in cluster.devices] == [
        ("alpha.d0", "alpha"),
        ("alpha.d1", "alpha"),
        ("beta.d0", "beta"),
    ]
    # The free memory of one machine, divided by its three ranks.
    assert cluster.devices[0].memory_bytes == 2_600_000_000
    assert [device.speed for device in cluster.devices] == [1.0, 1.0, 0.5]
    # The four links between hosts differ by less than 10 %: one wire, their median.
    assert cluster.between == Wire(bandwidth=50.2e6, latency_s=1e-4)
    assert cluster.bandwidth[0, 1] == 900e6
    assert cluster.bandwidth[1, 0] == 450e6
    # The interfaces of two hosts cannot be distinguished.
    assert [host.interface_bandwidth for host in cluster.hosts] == [50.3e6, 50.3e6]
    assert not isinstance(cluster.probed, msgspec.UnsetType)
    assert (cluster.probed.date, cluster.probed.backend, cluster.probed.rounds) == (DATE, "gloo", 5)
    assert cluster.probed.residuals[1] == (0.2, 0.0, 0.01)
    assert parse_cluster(write_cluster(cluster), where="again") == cluster


def test_wires_that_agree_become_one() -> None:
    rates = [88.0, 95.0, 96.0, 96.5, 97.0, 98.0, 200.0]
    found = wires_of([link(0, index + 1, rate * 1e6) for index, rate in enumerate(rates)])
    # 88 agrees with 95 and 96 but not with 98: the largest group that agrees is the five without it.
    assert [found[0, index + 1].bandwidth / 1e6 for index in range(7)] == [88, 96.5, 96.5, 96.5, 96.5, 96.5, 200]


def test_latencies_that_stand_out_stay() -> None:
    found = wires_of([link(0, 1, 1e8, 1e-4), link(0, 2, 1e8, 1.2e-4), link(0, 3, 1e8, 5e-3)])
    assert [found[0, target].latency_s for target in (1, 2, 3)] == [1.2e-4, 1.2e-4, 5e-3]


def test_speeds() -> None:
    rank_infos = [info(0, "a", 100.0), info(1, "a", 104.0), info(2, "a", 50.0), info(3, "a", 7.0, kind="T4")]
    assert speeds_of(rank_infos) == [1.0, 1.0, 0.5, 1.0]
    assert find_slow_ranks(rank_infos) == {2}


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_what_is_assumed(backend: str) -> None:
    cluster = build_cluster(msgspec.structs.replace(result(), backend=backend), "lab", DATE)
    assert any("shared memory" in note for note in cluster.assumptions) == (backend == "gloo")
