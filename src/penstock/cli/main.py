"""The command `penstock`: dispatches to subcommands, and turns errors into one message and an exit code."""

import atexit
import gc
import io
import os
import sys
from importlib import import_module
from typing import ClassVar

import click

from penstock import __version__
from penstock.cli.usage_errors import explain_usage
from penstock.errors import PenstockError, RunError
from penstock.names import ask_names, near_names
from penstock.printable_text import escape_lines


class _Verbs(click.Group):
    """Imports subcommands when they are called, so that help and errors appear at once."""

    summaries: ClassVar[dict[str, str]] = {
        "profile": "Measure or compute the time and memory of a model.",
        "cluster": "Show, measure or import a cluster.",
        "plan": "Cut a model, place it, order its actions; prove and simulate.",
        "compare": "Compare planners and schedules on one problem.",
        "simulate": "Simulate a plan or program.",
        "calibrate": "Adapt a profile to measured iterations.",
        "report": "Write an HTML page with plans and timelines.",
        "check": "Prove that a plan or program can run.",
        "export": "Write a plan in the form of another training engine.",
        "emulate": "Run a plan on this machine as if it were the cluster.",
        "selftest": "Check that Penstock works on this machine.",
        "train": "Train a model with a plan; compare measured with predicted times.",
    }

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.summaries)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.summaries and not name.startswith("-"):
            hint = ask_names(near_names(name, self.summaries)) or f"Commands: {', '.join(self.summaries)}."
            raise click.UsageError(f"no such command: {name[:60]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

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
    """Plan and run synchronous pipeline-parallel training: cuts, placement and order of actions.

    Try: penstock plan --profile gpt2-xl --cluster "8 x RTX-3090 @ 12 GB/s"
    """


OBJECTS_BETWEEN_COLLECTIONS = 500_000
"""New container objects between two runs of the garbage collector."""


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 a check or a run failed, 2 invalid input, 130 interrupted."""
    _collect_rarely()
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal cannot show appear as escape codes.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except PenstockError as error:
        show_error(str(error))
        code = 1 if isinstance(error, RunError) else 2
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        usage = error.ctx.get_usage() + "\n" if isinstance(error, click.UsageError) and error.ctx else ""
        hint = f"Try: {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        click.echo(usage, nl=False, err=True)
        show_error("\n  ".join(filter(None, (explain_usage(error), hint))))
        code = 2
    except (click.Abort, KeyboardInterrupt):
        show_error("interrupted")
        code = 130
    except SystemError as error:
        if not _is_interrupt(error):
            raise
        show_error("interrupted")
        code = 130
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        show_error("out of memory\n  Use fewer devices or micro-batches.")
        code = 2
    except OSError as error:
        show_error(f"cannot write the output: {error.strerror or error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _collect_rarely() -> None:
    """Keep the garbage collector from traversing imported modules, a tenth or more of a short command's time.

    Nearly all objects of a command are freed by their reference counts; the others are garbage in cycles. At exit the
    interpreter would traverse all objects once more, only to free memory that the system takes back anyway.
    """
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    atexit.register(gc.freeze)


def _is_interrupt(error: SystemError) -> bool:
    """Whether Ctrl-C was pressed inside a compiled kernel, which Python reports as an error of the kernel's call."""
    cause = error.__cause__ or error.__context__
    return isinstance(cause, KeyboardInterrupt) or (isinstance(cause, SystemError) and _is_interrupt(cause))


def show_error(text: str) -> None:
    """Write an error message to standard error."""
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(escape_lines(text), err=True)
