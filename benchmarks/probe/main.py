"""Accuracy of the probe: it measures clusters of network namespaces with known links (needs root, ip and tc).

    python benchmarks/probe/main.py            three clusters of eight devices, three to five minutes
    python benchmarks/probe/main.py --quick    a cluster of four devices

Prints one line per target with the measurement and `ok` or `short`. Exits with 1 if a target is missed.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.probe.namespaces import can_create_namespaces, create_namespaces, run_probe
from benchmarks.results import Result
from penstock.cluster import Cluster
from penstock.cluster.toml import parse_cluster, read_cluster

LIMIT_S = 120.0
WITHIN = 0.10
_FOUR = """
between = "50 MB/s"
kind = "cpu-1-thread"
inside = "300 MB/s"
""" + "".join(
    f'[[host]]\nname = "h{index}"\ndevices = 2\nshared_interface = "{rate} MB/s"\n'
    for index, rate in enumerate((50, 50, 50, 20))
)
_RATES = (10, 30, 100, 300, 50, 80, 20)
_EIGHT = 'hosts = 8\nkind = "cpu-1-thread"\nbetween = "10 MB/s"\ninside = "10 MB/s"\n' + "".join(
    f'[[link]]\nfrom = "h{a}.d0"\nto = "h{b}.d0"\nwire = "{_RATES[(3 * a + 5 * b) % 7]} MB/s"\n'
    for a in range(8)
    for b in range(8)
    if a != b
)
_TWO = """
hosts = 2
devices_per_host = 4
kind = "cpu-1-thread"
inside = "200 MB/s"
between = "40 MB/s"
shared_interface = "100 MB/s"
"""
QUICK = {"two hosts, two devices each": _TWO.replace("= 4", "= 2").replace('"100 MB/s"', '"40 MB/s"')}
CASES = {"four hosts, shared interfaces": _FOUR, "eight unequal hosts": _EIGHT, "two hosts, four devices each": _TWO}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if not can_create_namespaces():
        print("the benchmark requires root, network namespaces and tc", file=sys.stderr)
        return 2
    all_reached = True
    for name, text in (QUICK if arguments.quick else CASES).items():
        all_reached &= check_cluster(name, parse_cluster(text, where=name))
    return 0 if all_reached else 1


def check_cluster(name: str, truth: Cluster) -> bool:
    """Probe a cluster and print the results."""
    with tempfile.TemporaryDirectory() as folder, create_namespaces(truth) as namespaces:
        output = f"{folder}/found.toml"
        start_time = time.perf_counter()
        command = [sys.executable, "-m", "penstock", "cluster", "probe", "-o", output]
        codes = run_probe(command, truth, namespaces, 2 * LIMIT_S)
        seconds = time.perf_counter() - start_time
        if any(code != 0 for code in codes):
            print(f"{name}: the probe failed ({codes})")
            return False
        measured = read_cluster(output)
    others = ~np.eye(truth.num_devices, dtype=bool)
    worst = float(np.abs(measured.bandwidth[others] / reachable(truth)[others] - 1).max())
    shown, is_right = interfaces(truth, measured)
    results = [
        Result(f"{name}: worst bandwidth", f"within {WITHIN:.0%}", f"{worst:.1%} off", worst <= WITHIN),
        Result(f"{name}: shared interfaces", f"within {WITHIN:.0%}", shown, is_right),
        Result(f"{name}: time from start to end", f"< {LIMIT_S:.0f} s", f"{seconds:.0f} s", seconds < LIMIT_S),
    ]
    for result in results:
        print(result.line(quick=False), flush=True)
    return all(result.reached for result in results)


def reachable(truth: Cluster) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """The bandwidth that a single transfer reaches: that of its link, or of a slower interface."""
    limits = np.array([host.interface_bandwidth or np.inf for host in truth.hosts])[truth.host_index]
    across = truth.host_index[:, None] != truth.host_index[None, :]
    slower = np.minimum(truth.bandwidth, np.minimum(limits[:, None], limits[None, :]))
    return np.where(across, slower, truth.bandwidth)


def interfaces(truth: Cluster, measured: Cluster) -> tuple[str, bool]:
    """The measured bandwidths of shared interfaces, and whether they are correct."""
    pairs = [
        (ours.interface_bandwidth, theirs.interface_bandwidth)
        for ours, theirs in zip(measured.hosts, truth.hosts, strict=True)
    ]
    is_right = all(
        (ours is None) == (theirs is None) and (ours is None or theirs is None or abs(ours / theirs - 1) <= WITHIN)
        for ours, theirs in pairs
    )
    rates = [f"{ours / 1e6:.0f}" for ours, _ in pairs if ours is not None]
    return f"{', '.join(rates)} MB/s" if rates else "none", is_right


if __name__ == "__main__":
    sys.exit(main())
