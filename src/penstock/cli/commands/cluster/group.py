"""The group of commands `penstock cluster`."""

from importlib import import_module
from pathlib import Path
from typing import ClassVar

import click

from penstock.names import ask_names, near_names


class _Verbs(click.Group):
    """`penstock cluster FILE` shows the file; the other commands are imported when they are called."""

    summaries: ClassVar[dict[str, str]] = {
        "show": "Show hosts, devices and links; the default.",
        "probe": "Measure the links and devices of the cluster that this runs on.",
        "import": "Import nvidia-smi topo, NCCL's XML, Slurm's topology or a CSV matrix.",
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.summaries, *ctx.help_option_names):
            near = near_names(args[0], self.summaries, cutoff=0.75)
            if near and not Path(args[0]).exists():
                raise click.UsageError(f"no such file or command: {args[0]!r}. {ask_names(near)}", ctx)
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.summaries:
            return None
        command: click.Command = import_module(f"penstock.cli.commands.cluster.cluster_{cmd_name}").command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


@click.group("cluster", cls=_Verbs, options_metavar="", subcommand_metavar="[show] SOURCE | probe | import ...")
def command() -> None:
    """Show a cluster, measure one, or import one from other tools.

    \b
    penstock cluster lab.toml                          show hosts, devices and links
    penstock cluster "2 x 4 x A100-40 @ 100 GB/s / 1.25 GB/s"
    torchrun ... -m penstock cluster probe -o lab.toml
    nvidia-smi topo -m | penstock cluster import - -o lab.toml
    """  # noqa: D301
