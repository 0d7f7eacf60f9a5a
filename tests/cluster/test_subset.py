"""A subset of a cluster keeps the links between its devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.subset import select_devices
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from tests.support.reach import reach, reaches
from tests.support.small import one_host
from tests.support.strategies import clusters, sizes_up_to


@reaches(part=0.05, linked=0.01, fewer_hosts=0.01)
@given(clusters(), st.data())
def test_links_hosts_and_interfaces_are_those_of_the_whole(cluster: Cluster, data: st.DataObject) -> None:
    count = data.draw(sizes_up_to(cluster.num_devices))
    places = data.draw(st.permutations(range(cluster.num_devices)))[:count] + data.draw(st.sampled_from([[], [0]]))
    part = select_devices(cluster, places)
    kept = sorted(set(places))
    assert part.devices == tuple(cluster.devices[index] for index in kept)
    assert np.array_equal(part.bandwidth, cluster.bandwidth[np.ix_(kept, kept)])
    assert np.array_equal(part.latency_s, cluster.latency_s[np.ix_(kept, kept)])
    hosts = [part.hosts[index] for index in part.host_index]
    assert hosts == [cluster.hosts[index] for index in cluster.host_index[kept]]
    if part is not cluster:
        assert {host.name for host in part.hosts} == {device.host for device in part.devices}
        reach("part", part.num_devices > 1)
        reach("linked", part.links)
        reach("fewer_hosts", len(part.hosts) < len({device.host for device in cluster.devices}))


def test_all_is_the_cluster_itself() -> None:
    cluster = one_host(3)
    assert select_devices(cluster, [2, 0, 1]) is cluster


def test_the_order_is_that_of_the_cluster() -> None:
    # A set of integers has an order of its own: {64, 9, 8} iterates from 64.
    part = select_devices(one_host(70), [64, 9, 8, 9])
    assert [device.name for device in part.devices] == ["d8", "d9", "d64"]


@pytest.mark.parametrize("places", [[], [3], [-1, 0]])
def test_positions_out_of_range(places: list[int]) -> None:
    with pytest.raises(InputError, match="positions must be at least one index from 0 to 2, not "):
        select_devices(one_host(3), places)
