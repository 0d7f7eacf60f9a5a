"""penstock cluster probe: measure the cluster that this runs on."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click

from penstock.cli.commands.cluster_show import show_cluster
from penstock.cli.console import Screen, screen_options
from penstock.cli.render import planning
from penstock.cluster import Cluster
from penstock.errors import FileError, InputError, PenstockError
from penstock.launch import is_started, run_local
from penstock.units import counted, show_bytes


class _NumRanks(click.IntRange):
    """How many processes to start here."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            text = f"{str(value)[:60]!r} is not a number of processes to start on this computer."
            self.fail(f"{text} Write one from {self.min} to {self.max}, such as --local 4.", param, ctx)


@click.command("probe")
@click.option("-o", "--output", help="Write the cluster to this TOML file.")
@click.option("--name", default="probed", show_default=True, help="The cluster's name.")
@click.option("--local", "num_local", type=_NumRanks(2, 64), metavar="N", help="Start N processes on this computer.")
@click.option("--backend", type=click.Choice(["gloo", "nccl"]), help="nccl where torch finds a GPU, else gloo.")
@click.option("--host", help="This host's name; as the computer names itself if not given. Also PENSTOCK_HOST.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(1, 3600), default=30.0, show_default=True, metavar="SECONDS",
    help="How long a rank waits for another before it says which one is missing.",
)  # fmt: skip
@screen_options
def command(
    screen: Screen,
    output: str | None,
    name: str,
    num_local: int | None,
    backend: str | None,
    host: str | None,
    timeout_s: float,
) -> int:
    """Measure every link in both directions, what links share, and the memory and speed of every device.

    Start it by torchrun with one process for each device, on all hosts at once, as a training would be:

    \b
    torchrun --nnodes 4 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node 2 \\
        -m penstock cluster probe -o cluster.toml        (on each host with its own --node-rank)

    or try it on this computer:  penstock cluster probe --local 4

    N devices need about N rounds, of about a second each; rank 0 shows and writes the result.
    """  # noqa: D301
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise InputError("measuring a cluster needs torch", hint="Install it: pip install 'penstock[run]'")
    if output and not Path(output).resolve().parent.is_dir():
        # Better now than after a minute of measuring.
        raise FileError("there is no such folder to write to", where=output, hint="Make it, or name another file.")
    if num_local is not None and not is_started():
        return run_local(num_local)
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        cluster = _measure(screen if is_first else Screen(quiet=True), name, backend, host, timeout_s)
        if is_first:
            _show(screen, cluster, output)
    except InputError as error:
        if not is_started():
            raise
        _end(error, 2)
    except PenstockError as error:
        _end(error, 1)
    return _end(None, 0)


def _measure(screen: Screen, name: str, backend: str | None, host: str | None, timeout_s: float) -> Cluster:
    from penstock.probe import conclude, open_group, probe

    with screen.progress("waiting for all ranks") as show, open_group(backend, timeout_s) as group:
        findings = probe(group, host=host, show=show)
    took = f"{counted(findings.num_rounds, 'round')}, {findings.seconds:.0f} s"
    screen.show(
        f"measured {counted(len(findings.links), 'link')} in {took}; {show_bytes(findings.num_bytes)} were sent"
    )
    return conclude(findings, name)


def _show(screen: Screen, cluster: Cluster, output: str | None) -> None:
    from penstock.cluster.toml import write_cluster
    from penstock.io import write_whole

    if output:
        write_whole(output, write_cluster(cluster).encode())
    screen.data(cluster)
    show_cluster(screen, cluster)
    if output:
        screen.wrote(output)
        screen.next(planning(cluster, output))
    else:
        screen.next("the same with -o cluster.toml, to plan with it")


def _end(error: PenstockError | None, code: int) -> NoReturn:
    """At once: what torch does when a process ends may wait for ranks that have gone."""
    from penstock.cli.main import complain
    from penstock.probe import ToldByFirstError

    if error is not None and not isinstance(error, ToldByFirstError):
        complain(str(error))
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
