"""penstock cluster show: what a cluster is, link by link."""

import statistics
from collections.abc import Callable, Sequence

import click
import msgspec

from penstock.cli.console import Screen, screen_options
from penstock.cli.options import check_outputs
from penstock.cli.render import planning, warn_if_old
from penstock.cluster import Cluster, HostRow, Probed
from penstock.report import shown_name
from penstock.units import counted, show_bytes, show_percent, show_rate, show_seconds


@click.command("show")
@click.argument("source")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@screen_options
def command(screen: Screen, source: str, output: str | None) -> None:
    """What a cluster is: its hosts, devices and links, and what was assumed about them.

    SOURCE is a TOML file (docs/clusters.md), or a short form such as "2 x 4 x A100-40 @ 100 GB/s / 1.25 GB/s".
    """
    from penstock.cluster import load_cluster
    from penstock.cluster.toml import write_cluster
    from penstock.io import write_whole

    check_outputs((source,), (output,))
    cluster = load_cluster(source)
    if output:
        write_whole(output, write_cluster(cluster).encode())
    warn_if_old(screen, cluster)
    screen.data(cluster)
    show_cluster(screen, cluster)
    if output:
        screen.wrote(output)
    screen.next(planning(cluster, output or source))


def show_cluster(screen: Screen, cluster: Cluster) -> None:
    """The hosts, the links and what was assumed."""
    from penstock.cluster import cluster_doubts, cluster_rows, link_classes

    rows = [
        (
            row.label,
            ", ".join(f"{count} x {kind}" for kind, count in row.kinds),
            ", ".join("no limit known" if size is None else show_bytes(size) for size in row.memory_bytes),
            ", ".join(f"{speed:g}" for speed in row.speeds),
            # Where one device is alone, no wire is inside.
            _range([wire.bandwidth for wire in row.inside], show_rate),
            _range([wire.latency_s for wire in row.inside], show_seconds),
            _interface(row, len(cluster.hosts)),
        )
        for row in cluster_rows(cluster)
    ]
    title = f"{cluster.name}: {counted(cluster.num_devices, 'device')} on {counted(len(cluster.hosts), 'host')}"
    screen.table(title, ("host", "devices", "memory", "speed", "inside", "latency", "interface"), rows, left=2)
    links = [
        (
            f"{item.source} -> {item.target}",
            f"{item.num_links:,}",
            show_rate(item.wire.bandwidth),
            show_seconds(item.wire.latency_s),
        )
        for item in link_classes(cluster)
    ]
    screen.table("links, slowest first", ("such as", "how many", "bandwidth", "latency"), links)
    if not isinstance(cluster.probed, msgspec.UnsetType):
        when = f"{cluster.probed.date:%Y-%m-%d %H:%M %Z}"
        screen.show(f"  measured {when} with {shown_name(cluster.probed.backend)}{_residual_words(cluster.probed)}")
    screen.assumptions(*cluster.assumptions)
    for text in cluster_doubts(cluster):
        screen.warn(text)


def _range(values: Sequence[float], show: Callable[[float], str]) -> str:
    if not values:
        return "-"
    least, most = show(min(values)), show(max(values))
    return least if least == most else f"{least} to {most}"


def _interface(row: HostRow, num_hosts: int) -> str:
    if row.interface_bandwidth is not None:
        return f"shared, {show_rate(row.interface_bandwidth)}"
    return "of each device" if num_hosts > 1 else "-"  # nothing is known of a network that leads nowhere


def _residual_words(probed: Probed) -> str:
    links = [(value, a, b) for a, row in enumerate(probed.residuals) for b, value in enumerate(row) if a != b]
    if not links:
        return ""
    middle, worst = statistics.median(value for value, _, _ in links), max(links)
    return f"; times are {show_percent(middle)} from the fit in the median, {show_percent(worst[0])} on the worst link"
