"""penstock cluster probe: measure the cluster that this runs on."""

import os
from pathlib import Path
from typing import Any, NoReturn

import click

from penstock.cli.commands.cluster.cluster_show import show_cluster
from penstock.cli.console import Console, console_options
from penstock.cli.render import planning
from penstock.cluster import Cluster
from penstock.dist import exit_now, prepare_rank
from penstock.errors import FileError, InputError, PenstockError
from penstock.launch import is_rank, run_local
from penstock.units import show_bytes, show_count


class _NumRanks(click.IntRange):
    """The number of processes to start on this computer."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            text = f"{str(value)[:60]!r} is not a valid number of processes."
            self.fail(f"{text} Use a number from {self.min} to {self.max}, such as --local 4.", param, ctx)


@click.command("probe")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@click.option("--name", default="probed", show_default=True, help="The cluster's name.")
@click.option("--local", "num_local", type=_NumRanks(2, 64), metavar="N", help="Start N processes on this computer.")
@click.option(
    "--backend",
    type=click.Choice(["gloo", "nccl"]),
    help="Backend of torch.distributed [default: nccl with a GPU, otherwise gloo].",
)
@click.option("--device", help="Device of the ranks: cpu, cuda, xpu, auto, ... [default: a GPU, if any].")
@click.option("--host", help="This host's name [default: PENSTOCK_HOST, or the host name].")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, 3600), default=30.0, show_default=True, metavar="SECONDS",
    help="Seconds that a rank waits for another rank before it reports that rank as missing.",
)  # fmt: skip
@console_options
def command(
    console: Console,
    output: str | None,
    name: str,
    num_local: int | None,
    backend: str | None,
    device: str | None,
    host: str | None,
    timeout_s: float,
) -> int:
    """Measure every link in both directions, shared network interfaces, and the memory and speed of every device.

    Start it with torchrun, one process for each device, on all hosts at once, as for training:

    \b
    torchrun --nnodes 4 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node 2 \\
        -m penstock cluster probe -o cluster.toml        (on each host with its own --node-rank)

    or try it on this computer, with no port open to the network:  penstock cluster probe --local 4

    N devices take about N rounds of about a second each. Rank 0 shows and writes the result.
    """  # noqa: D301
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise InputError("cluster probe needs torch", hint="pip install 'penstock[run]'")
    if output and not Path(output).resolve().parent.is_dir():
        raise FileError("the directory of this file does not exist", where=output, hint="Create it, or name another.")
    if num_local is not None and not is_rank():
        return run_local(num_local)
    is_first = os.environ.get("RANK", "0") == "0"
    if is_rank():
        prepare_rank()
    try:
        cluster = _measure(console if is_first else Console(quiet=True), name, backend, device, host, timeout_s)
        if is_first:
            _show(console, cluster, output)
    except InputError as error:
        if not is_rank():
            raise
        _end(error, 2)
    except PenstockError as error:
        _end(error, 1)
    return _end(None, 0)


def _measure(
    console: Console, name: str, backend: str | None, device: str | None, host: str | None, timeout_s: float
) -> Cluster:
    from penstock.probe import build_cluster, open_group, probe

    with console.progress("waiting for all ranks") as show, open_group(backend, timeout_s, device=device) as group:
        result = probe(group, host=host, show=show)
    took = f"{show_count(result.num_rounds, 'round')}, {result.seconds:.0f} s"
    console.show(
        f"measured {show_count(len(result.links), 'link')} in {took}; {show_bytes(result.num_bytes)} were sent"
    )
    return build_cluster(result, name)


def _show(console: Console, cluster: Cluster, output: str | None) -> None:
    from penstock.cluster.toml import write_cluster
    from penstock.io import write_whole

    if output:
        write_whole(output, write_cluster(cluster).encode())
    console.data(cluster)
    show_cluster(console, cluster)
    if output:
        console.wrote(output)
        console.next(planning(cluster, output))
    else:
        console.next("repeat with -o cluster.toml to plan with it")


def _end(error: PenstockError | None, code: int) -> NoReturn:
    """Show the error, unless rank 0 does, and exit."""
    from penstock.cli.main import show_error
    from penstock.probe import ReportedError

    if error is not None and not isinstance(error, ReportedError):
        show_error(str(error))
    exit_now(code)
