"""The cluster of a page: all devices up to a limit, beyond it those in use; the links in use by index."""

from typing import Any

import msgspec
import pytest

from penstock.cluster.types import Cluster, Wire
from penstock.plan.types import Stage, on
from penstock.report.html.payload.cluster import cluster_data, rings
from penstock.report.subject import ReportSubject
from penstock.simulate.evaluation import evaluate
from tests.support.small import equal_profile, hand_plan, one_host


def subject(cluster: Cluster, *groups: tuple[str, ...]) -> ReportSubject:
    """A plan with a stage of one layer for each group."""
    profile = equal_profile(len(groups), cut_bytes=8, parameter_bytes=10)
    stages = [
        Stage(start=number, stop=number + 1, forward=on(*group), backward=on(*group))
        for number, group in enumerate(groups)
    ]
    item = evaluate(hand_plan(profile, cluster, stages), profile, cluster)
    return ReportSubject("one", item.timeline, item.costs, profile)


def names(data: dict[str, Any]) -> list[str]:
    return [device["name"] for device in data["devices"]]


@pytest.mark.parametrize(("limit", "shown"), [(4, ["d0", "d1", "d2", "d3"]), (3, ["d1", "d3"])])
def test_devices_and_links(limit: int, shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.html.payload.cluster.MAX_DEVICES", limit)
    cluster = one_host(4, bandwidth=100.0, latency_s=0.5)
    data = cluster_data(cluster, [subject(cluster, ("d3",), ("d1",))])
    assert (data["numDevices"], names(data)) == (4, shown)
    ends = [(shown[link["source"]], shown[link["target"]]) for link in data["links"]]
    assert ends == [("d1", "d3"), ("d3", "d1")]
    assert [(link["bandwidth"], link["latency"]) for link in data["links"]] == [(100.0, 0.5)] * 2


def test_links_of_rings_and_of_every_timeline() -> None:
    cluster = one_host(4)
    ring, row = subject(cluster, ("d0", "d1", "d2")), subject(cluster, ("d2",), ("d3",))
    assert rings(ring) == [{"devices": ["d0", "d1", "d2"], "bytes": pytest.approx(2 / 3 * 2 * 10)}]
    assert rings(row) == []
    links = {(link["source"], link["target"]) for link in cluster_data(cluster, [ring, row])["links"]}
    assert links == {(0, 1), (1, 2), (2, 0), (2, 3), (3, 2)}


def test_infinite_bandwidths_are_null() -> None:
    cluster = msgspec.structs.replace(one_host(2), between=Wire(bandwidth=float("inf"), latency_s=0.25))
    data = cluster_data(cluster, [])
    assert data["between"] == {"bandwidth": None, "latency": 0.25}
    assert data["hosts"] == [{"name": "h", "inside": {"bandwidth": 1.0, "latency": 0.0}, "interface": None}]
    assert data["links"] == []
