import time
from pathlib import Path

import numpy as np
import pytest

from penstock.cluster.toml.reader import parse_cluster, read_cluster
from penstock.cluster.types import Cluster, Device, Host, Link, Wire
from penstock.errors import FileError, InputError
from tests.support.paths import CLUSTERS
from tests.support.undisturbed import undisturbed

FIVE_LINES = """
hosts = 2
devices_per_host = 4
kind = "A100-40"
inside = "100 GB/s, 5 us"
between = "1.25 GB/s, 30 us"
"""

IRREGULAR = """
between = "10 Gbit/s, 50 us"
[[host]]
name = "alpha"
inside = "12 GB/s"
shared_interface = "10 Gbit/s"
devices = 2
kind = "RTX-3090"
[[device]]
name = "odd"
host = "alpha"
kind = "T4"
memory = "15 GB"
speed = 0.9
[[link]]
between = ["alpha.d0", "odd"]
wire = "6 GB/s, 8 us"
[[link]]
from = "odd"
to = "alpha.d1"
wire = "3 GB/s"
"""


def parse(text: str) -> Cluster:
    return parse_cluster(text, where="c.toml")


def test_five_lines() -> None:
    cluster = parse(FIVE_LINES)
    assert cluster == Cluster(
        name="c",
        hosts=tuple(Host(name=name, inside=Wire(bandwidth=100e9, latency_s=5e-6)) for name in ("h0", "h1")),
        devices=tuple(
            Device(name=f"h{host}.d{index}", host=f"h{host}", kind="A100-40", memory_bytes=40_000_000_000)
            for host in range(2)
            for index in range(4)
        ),
        between=Wire(bandwidth=1.25e9, latency_s=30e-6),
        assumptions=(
            "The memory of kind 'A100-40' is not specified: 40.0 GB from its data sheet.",
            "No speed is specified for any device: assumed 1.0, the full speed of the kind.",
            "`shared_interface` is not specified for any host: devices are assumed not to share network bandwidth.",
        ),
    )


def test_one_host_names_its_devices_shortly_and_needs_no_between() -> None:
    cluster = parse('hosts = 1\ndevices_per_host = 2\nkind = "X"\nmemory = "1 GB"\nspeed = 2\ninside = "1 GB/s, 0 s"')
    assert [device.name for device in cluster.devices] == ["d0", "d1"]
    assert [device.speed for device in cluster.devices] == [2.0, 2.0]
    # There is no connection, so nothing is assumed.
    assert cluster.assumptions == ()


def test_device_by_device_and_link_by_link() -> None:
    cluster = parse(IRREGULAR)
    gb = 1_000_000_000
    assert cluster.hosts == (Host(name="alpha", inside=Wire(bandwidth=12e9), interface_bandwidth=1.25e9),)
    assert cluster.devices == (
        Device(name="alpha.d0", host="alpha", kind="RTX-3090", memory_bytes=24 * gb),
        Device(name="alpha.d1", host="alpha", kind="RTX-3090", memory_bytes=24 * gb),
        Device(name="odd", host="alpha", kind="T4", memory_bytes=15 * gb, speed=0.9),
    )
    six = Wire(bandwidth=6e9, latency_s=8e-6)
    assert cluster.links == (
        Link(source="alpha.d0", target="odd", wire=six),
        Link(source="odd", target="alpha.d0", wire=six),
        Link(source="odd", target="alpha.d1", wire=Wire(bandwidth=3e9)),
    )
    inf = np.inf
    assert (cluster.bandwidth / 1e9).tolist() == [[inf, 12, 6], [12, inf, 12], [6, 3, inf]]
    assert cluster.assumptions == (
        "The memory of kind 'RTX-3090' is not specified: 24.0 GB from its data sheet.",
        "No speed is specified for all of RTX-3090: assumed 1.0, the full speed of the kind.",
        "No latency is specified for host[0].inside, link[1].wire: assumed 0 s.",
    )


def test_top_level_defaults_apply_without_a_more_specific_value() -> None:
    cluster = parse("""
        kind = "A"
        memory = "1 GB"
        speed = 0.5
        inside = "4 GB/s, 0 s"
        between = "1 GB/s, 0 s"
        shared_interface = true
        devices_per_host = 1
        [[host]]
        name = "p"
        [[host]]
        name = "q"
        devices = 0
        kind = "B"
        inside = "5 GB/s, 0 s"
        shared_interface = false
        [[device]]
        name = "plain"
        host = "p"
        [[device]]
        name = "other"
        host = "q"
        memory = "3 GB"
    """)
    assert cluster.hosts == (
        Host(name="p", inside=Wire(bandwidth=4e9), interface_bandwidth=1e9),
        Host(name="q", inside=Wire(bandwidth=5e9)),
    )
    assert cluster.devices == (
        Device(name="p.d0", host="p", kind="A", memory_bytes=10**9, speed=0.5),
        Device(name="plain", host="p", kind="A", memory_bytes=10**9, speed=0.5),
        # Half the speed belongs to kind A, so a device of kind B does not inherit it.
        Device(name="other", host="q", kind="B", memory_bytes=3 * 10**9, speed=1.0),
    )
    assert cluster.assumptions == ("No speed is specified for all of B: assumed 1.0, the full speed of the kind.",)


def test_an_unknown_kind_has_no_memory_limit() -> None:
    cluster = parse('devices_per_host = 1\nkind = "A100_41"\nspeed = 1')
    assert cluster.devices[0].memory_bytes is None
    assert cluster.assumptions == (
        "`hosts` is not specified: all devices are on one host, h0.",
        (
            "The memory of kind 'A100_41' is not specified and the kind has no data sheet (did you mean 'A100-40'?): "
            "no memory limit is assumed."
        ),
    )


def test_unlimited_memory_and_bandwidth_can_be_written() -> None:
    cluster = parse('hosts = 1\ndevices_per_host = 2\nkind = "T4"\nmemory = "unlimited"\ninside = "unlimited, 1 us"')
    assert cluster.devices[0].memory_bytes is None
    assert cluster.hosts[0].inside == Wire(bandwidth=np.inf, latency_s=1e-6)


def test_inside_falls_back_to_between() -> None:
    cluster = parse('hosts = 2\ndevices_per_host = 2\nkind = "T4"\nbetween = "1 GB/s, 1 us"\nshared_interface = true')
    assert [host.inside for host in cluster.hosts] == [cluster.between] * 2
    expected = "`inside` is not specified for any host: assumed equal to `between`."
    assert expected in cluster.assumptions


def test_hosts_alone_have_one_device_each() -> None:
    cluster = parse('hosts = 2\nkind = "T4"\nbetween = "1 GB/s, 1 us"\n[[host]]\nname = "empty"')
    assert [device.name for device in cluster.devices] == ["h0.d0", "h1.d0"]
    assert "`devices_per_host` is not specified: each of the `hosts` has one device." in cluster.assumptions


def test_wires_are_not_needed_where_every_pair_has_a_link() -> None:
    text = 'kind = "T4"\n' + "".join(f'[[host]]\nname = "{name}"\ndevices = 1\n' for name in "ab")
    one_way = '[[link]]\nfrom = "a.d0"\nto = "b.d0"\nwire = "1 GB/s"\n'
    with pytest.raises(InputError, match="between is missing"):
        parse(text + one_way)
    cluster = parse(text + one_way.replace("from", "to", 1).replace('to = "b', 'from = "b') + one_way)
    assert cluster.bandwidth.tolist() == [[np.inf, 1e9], [1e9, np.inf]]
    assert "`between` is not specified, and no two devices need it." in cluster.assumptions


def test_the_name_defaults_to_that_of_the_file() -> None:
    assert parse(FIVE_LINES).name == "c"
    assert parse('name = "mine"' + FIVE_LINES).name == "mine"
    assert parse_cluster(FIVE_LINES, where="").name == "cluster"


def test_a_byte_order_mark_is_passed_over() -> None:
    assert parse("\ufeff" + FIVE_LINES) == parse(FIVE_LINES)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "two hosts.toml"
    with pytest.raises(FileError):
        read_cluster(path)
    path.write_text(FIVE_LINES)
    assert read_cluster(path).name == "two hosts"
    path.write_bytes(b"hosts = 1\n# \xff")
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert caught.value.where == f"{path}:2:3"


@pytest.mark.parametrize(
    ("name", "num_devices", "num_hosts", "num_assumptions"),
    # What each leaves out, of: memory of a known kind, speed, inside, shared_interface. One host needs no between.
    [
        ("one-host", 8, 1, 2),  # memory, speed
        ("two-hosts", 8, 2, 3),  # memory, speed, shared_interface
        ("shared-network", 32, 4, 0),
        ("lab", 6, 3, 5),  # memory of three kinds, speed, inside of a host with one device
        ("paired", 4, 1, 2),  # memory, speed
        ("processes", 4, 1, 1),  # speed
        ("this-machine", 2, 1, 1),  # speed
        ("large", 1024, 128, 2),  # memory, speed
    ],
)
def test_examples(name: str, num_devices: int, num_hosts: int, num_assumptions: int) -> None:
    cluster = read_cluster(CLUSTERS / f"{name}.toml")
    assert (cluster.num_devices, len(cluster.hosts)) == (num_devices, num_hosts)
    assert len(cluster.assumptions) == num_assumptions


def test_every_example_is_tested() -> None:
    tested = {"one-host", "two-hosts", "shared-network", "lab", "paired", "processes", "this-machine", "large"}
    assert {path.stem for path in CLUSTERS.glob("*.toml")} == tested


@undisturbed
def test_reading_is_quick() -> None:
    def least_s(text: str) -> float:
        spent = []
        for _ in range(5):
            start = time.perf_counter()
            assert parse(text).bandwidth.size
            spent.append(time.perf_counter() - start)
        return min(spent)

    # About 0.1 ms and 20 ms on a machine that does nothing else.
    assert least_s(FIVE_LINES) < 2e-3
    assert least_s(FIVE_LINES.replace("2", "128", 1).replace("4", "8", 1)) < 50e-3
