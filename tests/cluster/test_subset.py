"""A part of a cluster has the links of the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.subset import part_of
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from tests.support.small import one_host
from tests.support.strategies import clusters


@given(clusters(), st.data())
def test_links_hosts_and_interfaces_are_those_of_the_whole(cluster: Cluster, data: st.DataObject) -> None:
    places = data.draw(st.lists(st.integers(0, cluster.num_devices - 1), min_size=1))
    part = part_of(cluster, places)
    kept = sorted(set(places))
    assert part.devices == tuple(cluster.devices[place] for place in kept)
    assert np.array_equal(part.bandwidth, cluster.bandwidth[np.ix_(kept, kept)])
    assert np.array_equal(part.latency_s, cluster.latency_s[np.ix_(kept, kept)])
    hosts = [part.hosts[place] for place in part.host_index]
    assert hosts == [cluster.hosts[place] for place in cluster.host_index[kept]]
    if part is not cluster:
        assert {host.name for host in part.hosts} == {device.host for device in part.devices}


def test_all_is_the_cluster_itself() -> None:
    cluster = one_host(3)
    assert part_of(cluster, [2, 0, 1]) is cluster


@pytest.mark.parametrize("places", [[], [3], [-1, 0]])
def test_places_that_are_not_there(places: list[int]) -> None:
    with pytest.raises(InputError, match="a part of 3 devices"):
        part_of(one_host(3), places)
