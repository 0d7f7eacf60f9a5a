"""Measured all-reduces of a cluster: their file format, and what reductions take."""

import pytest

from penstock.cluster.toml import parse_cluster, write_cluster
from penstock.errors import InputError
from penstock.plan.pricing.allreduce_ring import reduce_ring

TOML = """
hosts = 2
devices_per_host = 4
kind = "T4"
inside = "10 GB/s"
between = "1 GB/s"

[[all_reduce]]
devices = 2
bytes = [1000, 1e6]
seconds = [1e-5, 2.5e-4]
"""


def test_reductions_within_a_host_take_what_was_measured() -> None:
    cluster = parse_cluster(TOML, where="c.toml")
    assert reduce_ring(cluster, [0, 1], 1e6).occupancy_s == 2.5e-4
    assert reduce_ring(cluster, [0, 1], 1e6).latency_s == 0.0
    # Other numbers of devices, and devices of two hosts, are computed from the links.
    plain = parse_cluster(TOML.partition("[[")[0], where="c.toml")
    for devices in ([0, 1, 2], [0, 4]):
        assert reduce_ring(cluster, devices, 1e6) == reduce_ring(plain, devices, 1e6)
    assert cluster.digest != plain.digest


def test_the_file_keeps_them() -> None:
    cluster = parse_cluster(TOML, where="c.toml")
    again = parse_cluster(write_cluster(cluster), where="c.toml")
    assert again.all_reduces == cluster.all_reduces
    assert again.digest == cluster.digest


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("devices = 2", "devices = 1", "at least 2"),
        ("bytes = [1000, 1e6]", "bytes = [1e6, 1000]", "ascend"),
        ("bytes = [1000, 1e6]", 'bytes = ["1 MB", 2]', "positive numbers"),
        ("seconds = [1e-5, 2.5e-4]", "seconds = [1e-5]", "as many seconds as sizes"),
        ("seconds = [1e-5, 2.5e-4]", "", "seconds is missing"),
        ("seconds =", "second =", "unknown key"),
    ],
)
def test_bad_tables(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_cluster(TOML.replace(old, new), where="c.toml")


def test_one_table_for_each_number_of_devices() -> None:
    with pytest.raises(InputError, match="same number of devices"):
        parse_cluster(TOML + TOML.partition('1 GB/s"\n')[2], where="c.toml")
