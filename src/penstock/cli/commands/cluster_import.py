"""penstock cluster import: read what another tool says of a cluster."""

import sys
from pathlib import Path

import click

from penstock.cli.commands.cluster_show import show_cluster
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import check_outputs
from penstock.cli.render import planning
from penstock.errors import InputError

_FORMATS = ("nvidia-smi", "nccl", "slurm", "csv")


@click.command("import")
@click.argument("file")
@click.option("--from", "source", type=click.Choice(_FORMATS), help="Which tool wrote it; found out if not given.")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@click.option("--name", help="The cluster's name; the file's if not given.")
@click.option("--kind", help="Which device it is, such as A100-40, where the text does not say.")
@click.option("--hosts", "num_hosts", type=click.IntRange(1), help="So many hosts like the one in the text.")
@click.option("--between", help='What joins those hosts, such as "12 GB/s, 15 us".')
@click.option("--devices-per-host", type=click.IntRange(1), help="For Slurm, which says nothing of devices.")
@click.option("--nodes", help="For Slurm: only these nodes, such as 'node[01-16,20]'.")
@click.option("--link", "links", multiple=True, metavar="CLASS=WIRE", help="What a class stands for; can be repeated.")
@screen_options
def command(
    screen: Screen,
    file: str,
    source: str | None,
    output: str | None,
    name: str | None,
    kind: str | None,
    num_hosts: int | None,
    between: str | None,
    devices_per_host: int | None,
    nodes: str | None,
    links: tuple[str, ...],
) -> None:
    """Read a cluster from nvidia-smi topo -m, NCCL's XML, Slurm's topology or a CSV matrix.

    FILE is a file, or - for standard input:

    \b
    nvidia-smi topo -m | penstock cluster import - --kind A100-40 -o host.toml
    penstock cluster import topology.xml --hosts 4 -o cluster.toml
    penstock cluster import /etc/slurm/topology.conf --nodes 'node[01-08]' --devices-per-host 4 --kind H100
    penstock cluster import topo.txt --link NV12=280GB/s --link SYS="20 GB/s, 8 us"

    Classes of links (NV12, PIX, SYS, ...) become bandwidths by a table: docs/clusters.md.
    """  # noqa: D301
    from penstock.cluster.toml import parse_wire, write_cluster
    from penstock.cluster.topology import UNKNOWN_KIND, Wanted, parse_link_types, parse_topology
    from penstock.io import write_whole

    check_outputs((file,), (output,))
    wanted = Wanted(
        kind=kind,
        num_hosts=num_hosts,
        devices_per_host=devices_per_host,
        between=parse_wire(between, key="between", where="--between").wire if between is not None else None,
        nodes=nodes,
        links=parse_link_types(links),
    )
    text, where = _read(file)
    cluster = parse_topology(
        text, name=name or (Path(file).stem if file != "-" else "imported"), where=where, source=source, wanted=wanted
    )
    if output:
        write_whole(output, write_cluster(cluster).encode())
    screen.data(cluster)
    show_cluster(screen, cluster)
    if output:
        screen.wrote(output)
        unsaid = any(device.kind == UNKNOWN_KIND for device in cluster.devices)
        screen.next("the same with --kind, such as --kind A100-40" if unsaid else planning(cluster, output))
    else:
        screen.next(
            "the same with -o cluster.toml, to plan with it; `penstock cluster probe` measures what this assumes"
        )


def _read(file: str) -> tuple[str, str]:
    from penstock.io import read_text

    if file != "-":
        return read_text(file), file
    try:
        return sys.stdin.buffer.read().decode("utf-8"), "standard input"
    except UnicodeDecodeError:
        raise InputError("this is not UTF-8 text", where="standard input", hint="Is it the right text?") from None
