from pathlib import Path

import pytest

from penstock.cluster.load import load_cluster, looks_like_spec, parse_spec
from penstock.cluster.types import Wire
from penstock.errors import FileError, InputError


def test_devices_of_one_host() -> None:
    cluster = parse_spec("8 x A100-40 @ 100 GB/s")
    assert cluster.name == "8 x A100-40 @ 100 GB/s"
    assert [device.name for device in cluster.devices] == [f"d{index}" for index in range(8)]
    assert {device.kind for device in cluster.devices} == {"A100-40"}
    assert cluster.hosts[0].inside == Wire(bandwidth=100e9)


def test_hosts_of_devices() -> None:
    cluster = parse_spec("2 x 4 x V100-16 @ 100 GB/s, 5 us / 1.25 GB/s, 30 us")
    assert (len(cluster.hosts), cluster.num_devices) == (2, 8)
    assert cluster.hosts[1].inside == Wire(bandwidth=100e9, latency_s=5e-6)
    assert cluster.between == Wire(bandwidth=1.25e9, latency_s=30e-6)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2x4xT4@1GB/s/10Gbit/s", "2 x 4 x T4 @ 1 GB/s / 10 Gbit/s"),
        (" 2 × 4 * T4 @ 8 Gbps / 10 Gbps ", "2 x 4 x T4 @ 1 GB/s / 1.25 GB/s"),
        ("1 x 4 x T4 @ 1 GB/s", "4 x T4 @ 1 GB/s"),
        ("1 x T4", "1 x 1 x T4"),
        ("3 x 4090 @ 1 GB/s, 2 us", "3 x 4090 @ 1 GB/s, 2us"),
    ],
)
def test_ways_to_write_the_same(text: str, same: str) -> None:
    one, other = parse_spec(text), parse_spec(same)
    assert (one.hosts, one.devices, one.between) == (other.hosts, other.devices, other.between)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "must begin with a number of devices"),
        ("A100", "must begin with a number of devices"),
        ("8 x", "must begin with a number of devices"),
        ("8 x @ 1 GB/s", "must begin with a number of devices"),
        ("2 x 2 x 2 x T4 @ 1 GB/s / 1 GB/s", "must begin with a number of devices"),
        ("0 x T4", "at least 1"),
        ("8 x T4", "the bandwidth between the devices is missing"),
        ("2 x 4 x T4 @ 1 GB/s", "the bandwidth between hosts is missing"),
        ("8 x T4 @ 1 GB/s / 1 GB/s", "number of bandwidths (2) exceeds the number of counts before the kind (1)"),
        ("2 x 8 x T4 @ 1 GB/s / 1 GB/s / 1 GB/s", "(3) exceeds the number of counts before the kind (2)"),
        ("8 x T4 @ 100", "has no unit"),
        ("8 x T4 @", "is not a quantity"),
        ("8 x T4 @ -1 GB/s", "must be finite and not negative"),
        ("70000 x T4 @ 1 GB/s", "more than 65,536"),
        ("999999999999 x 999999999999 x T4 @ 1 GB/s / 1 GB/s", "more than 65,536"),
        ("8 x T\x1b4 @ 1 GB/s", "not a cluster"),
        ("8 x T\ud8004 @ 1 GB/s", "not a cluster"),
        ("8 x " + "T" * 1000, "not a cluster"),
    ],
)
def test_refused(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(text)
    assert what in caught.value.what
    assert caught.value.hint or "finite" in what
    assert caught.value.where


def test_specs_are_distinguished_from_paths() -> None:
    assert looks_like_spec("8 x A100-40 @ 100 GB/s")
    assert looks_like_spec("8xT4")
    assert looks_like_spec("A100 @ 100 GB/s")  # wrong, but the error should say how a spec is written
    assert not looks_like_spec("2x8.toml")
    assert not looks_like_spec("8 x T4 @ home.TOML")
    assert not looks_like_spec("clusters/lab")
    assert not looks_like_spec("")


def test_loading_either(tmp_path: Path) -> None:
    path = tmp_path / "2 x T4"
    path.write_text('hosts = 3\nkind = "T4"\nbetween = "1 GB/s"')
    assert load_cluster(path).num_devices == 3
    assert load_cluster(str(path)).num_devices == 3
    assert load_cluster("2 x T4 @ 1 GB/s").num_devices == 2
    with pytest.raises(FileError):
        load_cluster("not there")
