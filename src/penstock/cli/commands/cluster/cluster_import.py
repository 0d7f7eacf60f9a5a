"""penstock cluster import: read a cluster from the output of another tool."""

import sys
from pathlib import Path

import click

from penstock.cli.commands.cluster.cluster_show import show_cluster
from penstock.cli.console import Console, console_options
from penstock.cli.options import check_outputs
from penstock.cli.render import planning
from penstock.errors import InputError

_FORMATS = ("nvidia-smi", "nccl", "slurm", "csv")


@click.command("import")
@click.argument("file")
@click.option("--from", "source", type=click.Choice(_FORMATS), help="The tool that wrote the file [default: detected].")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@click.option("--name", help="The cluster's name [default: the file's].")
@click.option("--kind", help="Device kind, such as A100-40, if the file does not name it.")
@click.option("--hosts", "num_hosts", type=click.IntRange(1), help="Number of hosts like the one in the file.")
@click.option("--between", help='The link between these hosts, such as "12 GB/s, 15 us".')
@click.option("--devices-per-host", type=click.IntRange(1), help="For Slurm, whose files do not name devices.")
@click.option("--nodes", help="For Slurm: use these nodes only, such as 'node[01-16,20]'.")
@click.option(
    "--link",
    "links",
    multiple=True,
    metavar="CLASS=WIRE",
    help="Bandwidth and latency of a link class; may be repeated.",
)
@console_options
def command(
    console: Console,
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
    """Import a cluster from nvidia-smi topo -m, NCCL's XML, Slurm's topology or a CSV matrix.

    FILE is a file, or - for standard input:

    \b
    nvidia-smi topo -m | penstock cluster import - --kind A100-40 -o host.toml
    penstock cluster import topology.xml --hosts 4 -o cluster.toml
    penstock cluster import /etc/slurm/topology.conf --nodes 'node[01-08]' --devices-per-host 4 --kind H100
    penstock cluster import topo.txt --link NV12=280GB/s --link SYS="20 GB/s, 8 us"

    A table maps link classes (NV12, PIX, SYS, ...) to bandwidths: docs/clusters.md.
    """  # noqa: D301
    from penstock.cluster.toml import parse_wire, write_cluster
    from penstock.cluster.topology import UNKNOWN_KIND, ImportOptions, parse_link_types, parse_topology
    from penstock.io import write_whole

    check_outputs((file,), (output,))
    options = ImportOptions(
        kind=kind,
        num_hosts=num_hosts,
        devices_per_host=devices_per_host,
        between=parse_wire(between, key="between", where="--between").wire if between is not None else None,
        nodes=nodes,
        links=parse_link_types(links),
    )
    text, where = _read(file)
    cluster = parse_topology(
        text, name=name or (Path(file).stem if file != "-" else "imported"), where=where, source=source, options=options
    )
    if output:
        write_whole(output, write_cluster(cluster).encode())
    console.data(cluster)
    show_cluster(console, cluster)
    if output:
        console.wrote(output)
        is_unknown = any(device.kind == UNKNOWN_KIND for device in cluster.devices)
        console.next("repeat with --kind, such as --kind A100-40" if is_unknown else planning(cluster, output))
    else:
        console.next("repeat with -o cluster.toml to plan with it; `penstock cluster probe` measures bandwidths")


def _read(file: str) -> tuple[str, str]:
    from penstock.io import read_text

    if file != "-":
        return read_text(file), file
    try:
        return sys.stdin.buffer.read().decode("utf-8"), "standard input"
    except UnicodeDecodeError:
        raise InputError("this is not UTF-8 text", where="standard input", hint="Check the input.") from None
