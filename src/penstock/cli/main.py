"""The command `penstock`: finds the verb, and turns Penstock's errors into one clear message and an exit code."""

import io
import os
import re
import sys
from importlib import import_module
from typing import ClassVar

import click

from penstock import __version__
from penstock.errors import PenstockError, RunError


class _Verbs(click.Group):
    """Verbs are loaded when they are called, so that help and errors come at once."""

    summaries: ClassVar[dict[str, str]] = {
        "profile": "What a model costs, unit by unit.",
        "cluster": "What a cluster is, link by link.",
        "plan": "Cut a model, place it, order the work; prove and simulate it.",
        "compare": "All planners and schedules on one problem.",
        "simulate": "The timeline of a plan or program.",
        "report": "One HTML file that shows plans and timelines.",
        "check": "Prove that a plan or program can run.",
        "emulate": "Run a plan here as if this were the cluster.",
        "train": "Train your own model by a plan; predicted against measured.",
    }

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.summaries:
            return None
        command: click.Command = import_module(f"penstock.cli.commands.{cmd_name}").command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """Plan synchronous pipeline-parallel training: where to cut, which device gets what, in which order.

    Try: penstock plan --profile gpt2-xl --cluster "8 x RTX-3090 @ 12 GB/s"
    """


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a check said no or a run failed, 2 the input must be mended."""
    for stream in (sys.stdout, sys.stderr):
        # Where the terminal cannot show a character, show its code rather than fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except PenstockError as error:
        complain(str(error))
        code = 1 if isinstance(error, RunError) else 2
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        usage = error.ctx.get_usage() + "\n" if isinstance(error, click.UsageError) and error.ctx else ""
        hint = f"Try: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        click.echo(usage, nl=False, err=True)
        complain("\n  ".join(filter(None, (_plainly(error.format_message()), hint))))
        code = 2
    except (click.Abort, KeyboardInterrupt):
        complain("stopped")
        code = 130
    except BrokenPipeError:
        # The reader of our output has gone, such as `head`: there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        complain("this is too large for the memory of this machine\n  Use fewer devices or micro-batches.")
        code = 2
    except OSError as error:
        complain(f"the output could not be written: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _plainly(text: str) -> str:
    """What click says of a bad value, without its names of types."""
    for kind, meant in (("float", "number"), ("integer", "whole number")):
        text = re.sub(rf"is not a valid {kind}(?: range)?\.", f"is not a {meant}.", text)
    return text


def complain(text: str) -> None:
    """One clear message on standard error."""
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(text, err=True)
