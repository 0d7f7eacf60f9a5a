"""penstock cluster show: the hosts, devices and links of a cluster."""

import statistics
from collections.abc import Callable, Sequence

import click
import msgspec

from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs
from penstock.cli.render import planning, warn_if_old
from penstock.cluster import Cluster, HostRow, ProbeRecord
from penstock.printable_text import escape_text
from penstock.units import show_bytes, show_count, show_percent, show_rate, show_seconds


@click.command("show")
@click.argument("source")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@console_options
def command(console: Console, source: str, output: str | None) -> None:
    """Show the hosts, devices and links of a cluster, and the assumptions about them.

    SOURCE is a TOML file (docs/clusters.md), or a short form such as "2 x 4 x A100-40 @ 100 GB/s / 1.25 GB/s".
    """
    from penstock.cluster import load_cluster
    from penstock.cluster.toml import write_cluster
    from penstock.io import write_whole

    check_outputs((source,), (output,))
    cluster = load_cluster(source)
    if output:
        write_whole(output, write_cluster(cluster).encode())
    warn_if_old(console, cluster)
    console.data(cluster)
    show_cluster(console, cluster)
    if output:
        console.wrote(output)
    console.next(planning(cluster, output or source))


def show_cluster(console: Console, cluster: Cluster) -> None:
    """Show hosts, links and assumptions."""
    from penstock.cluster import cluster_rows, cluster_warnings, link_classes

    rows = [
        (
            row.label,
            ", ".join(f"{count} x {kind}" for kind, count in row.kinds),
            ", ".join("unknown" if size is None else show_bytes(size) for size in row.memory_bytes),
            ", ".join(f"{speed:g}" for speed in row.speeds),
            # A host with one device has no links inside.
            _range([wire.bandwidth for wire in row.inside], show_rate),
            _range([wire.latency_s for wire in row.inside], show_seconds),
            _interface(row, len(cluster.hosts)),
        )
        for row in cluster_rows(cluster)
    ]
    title = f"{cluster.name}: {show_count(cluster.num_devices, 'device')} on {show_count(len(cluster.hosts), 'host')}"
    console.table(title, ("host", "devices", "memory", "speed", "inside", "latency", "interface"), rows, left=2)
    links = [
        (
            f"{item.source} -> {item.target}",
            f"{item.num_links:,}",
            show_rate(item.wire.bandwidth),
            show_seconds(item.wire.latency_s),
        )
        for item in link_classes(cluster)
    ]
    console.table("links, slowest first", ("example", "number", "bandwidth", "latency"), links)
    if not isinstance(cluster.probed, msgspec.UnsetType):
        when = f"{cluster.probed.date:%Y-%m-%d %H:%M %Z}"
        console.show(f"  measured {when} with {escape_text(cluster.probed.backend)}{_residual_words(cluster.probed)}")
    console.assumptions(*cluster.assumptions)
    for text in cluster_warnings(cluster):
        console.warn(text)


def _range(values: Sequence[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    least, most = show(min(values)), show(max(values))
    return least if least == most else f"{least} to {most}"


def _interface(row: HostRow, num_hosts: int) -> str:
    if row.interface_bandwidth is not None:
        return f"shared, {show_rate(row.interface_bandwidth)}"
    return "one per device" if num_hosts > 1 else "-"  # a single host has no network


def _residual_words(probed: ProbeRecord) -> str:
    links = [(value, a, b) for a, row in enumerate(probed.residuals) for b, value in enumerate(row) if a != b]
    if not links:
        return ""
    middle, worst = statistics.median(value for value, _, _ in links), max(links)
    return f"; residuals of the fit: median {show_percent(middle)}, worst link {show_percent(worst[0])}"
