"""Probes with real processes: all ranks agree, and errors name a rank that exits."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.probe.namespaces import can_create_namespaces, create_namespaces, run_probe
from penstock.cluster.toml.reader import parse_cluster, read_cluster
from penstock.cluster.types import Cluster
from tests.support.runtime.loopback_store import host_store, rendezvous_environment
from tests.support.undisturbed import must, undisturbed

LIMIT_S = 100
COMMAND = (sys.executable, "-m", "penstock", "cluster", "probe")

ENDS_EARLY = """
import os
import penstock.probe.measure as measuring
from penstock.cli.main import main
measuring.{what} = lambda *_: os._exit(3)
main()
"""


def start(rank: int, num_ranks: int, port: int, *arguments: str, script: str = "") -> "subprocess.Popen[str]":
    environment = {
        **os.environ,
        **rendezvous_environment(port, rank, num_ranks),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", script, "cluster", "probe"] if script else COMMAND
    return subprocess.Popen([*command, *arguments], env=environment, stdout=-1, stderr=-1, text=True)


def test_three_processes(tmp_path: Path) -> None:
    path = tmp_path / "measured.toml"
    done = subprocess.run(
        [*COMMAND, "--local", "3", "-o", path], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3 devices on 1 host" in done.stdout
    assert f"wrote {path}" in done.stdout
    cluster = read_cluster(path)
    assert {device.kind for device in cluster.devices} == {"cpu-1-thread"}
    assert all(device.memory_bytes for device in cluster.devices)
    others = ~np.eye(3, dtype=bool)
    assert ((cluster.bandwidth[others] > 1e7) & (cluster.bandwidth[others] < 1e12)).all()
    assert ((cluster.latency_s[others] > 1e-7) & (cluster.latency_s[others] < 0.1)).all()
    assert not isinstance(cluster.probed, msgspec.UnsetType)
    assert cluster.probed.backend == "gloo"
    residuals = np.array(cluster.probed.residuals)
    assert residuals.shape == (3, 3)
    assert (residuals.diagonal() == 0).all()
    assert 0 < residuals[others].max() < 10
    assert cluster.probed.rounds >= 3  # all pairs of three ranks
    assert [table.num_devices for table in cluster.all_reduces] == [2, 3]
    for table in cluster.all_reduces:
        assert table.num_bytes[0] == 16384
        assert 1e-6 < table.seconds[0] < 1


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("measure_kernel", "waiting for rank 1 on {host} to finish the kernel: timed out after 4.5 s"),
        ("measure_link", "rank 0 on {host}, receiving from rank 1 on {host}: the connection is lost"),
    ],
)
def test_a_rank_that_ends_is_named(what: str, message: str) -> None:
    store = host_store()
    arguments = ("--timeout", "3", "--host", "here")
    script = ENDS_EARLY.format(what=what)
    ranks = [start(0, 2, store.port, *arguments), start(1, 2, store.port, *arguments, script=script)]
    try:
        errors = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [1, 3]
    assert message.format(host="here") in errors[0]
    assert "Traceback" not in errors[0]


def test_a_rank_that_never_joins() -> None:
    store = host_store()
    rank = start(0, 2, store.port, "--timeout", "2")
    error = rank.communicate(timeout=LIMIT_S)[1]
    assert rank.returncode == 1
    assert "not all of the 2 ranks joined at 127.0.0.1" in error
    assert "Traceback" not in error


SHAPED = """
between = "60 MB/s"
inside = "150 MB/s"
kind = "cpu-1-thread"
[[host]]
name = "left"
devices = 2
shared_interface = "60 MB/s"
[[host]]
name = "right"
devices = 2
shared_interface = "60 MB/s"
"""


def truth() -> Cluster:
    return parse_cluster(SHAPED, where="shaped")


@undisturbed
def test_a_shaped_network_is_measured(tmp_path: Path) -> None:
    if not can_create_namespaces():
        pytest.skip("network namespaces and tc need root")
    path = tmp_path / "measured.toml"
    with create_namespaces(truth()) as namespaces:
        codes = run_probe([*COMMAND, "-o", str(path)], truth(), namespaces, LIMIT_S)
    must(codes == [0] * 4, codes)
    measured = read_cluster(path)
    assert [device.host for device in measured.devices] == ["left", "left", "right", "right"]
    others = ~np.eye(4, dtype=bool)
    assert measured.bandwidth[others] == pytest.approx(truth().bandwidth[others], rel=0.1)
    assert [host.interface_bandwidth for host in measured.hosts] == pytest.approx([60e6, 60e6], rel=0.1)
