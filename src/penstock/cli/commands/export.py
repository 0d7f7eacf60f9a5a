"""penstock export: a plan in the form of another training engine."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from penstock.cli.console import Console, console_options
from penstock.cli.options import PlanFile, plan_file_options
from penstock.cli.render import warn_if_old
from penstock.errors import FileError, InputError
from penstock.export import ENGINES, export_plan, find_engine
from penstock.names import list_names
from penstock.units import show_seconds

MARK = "Exported by Penstock"


@click.command("export")
@plan_file_options
@click.option("--to", "engine", required=True, help=f"The engine: {', '.join(ENGINES)}.")
@click.option("-o", "--output", required=True, help="Write the files to this folder.")
@console_options
def command(console: Console, plan_file: PlanFile, engine: str, output: str) -> None:
    """Write a plan in the form of another training engine, with a README that states how to run it.

    PATH is a plan or program file. What the engine cannot run is refused by name; `penstock plan --engine` plans
    without it.
    """
    from penstock.io import write_all
    from penstock.simulate import evaluate_costs

    bundle = plan_file.open()
    warn_if_old(console, bundle.cluster)
    costs = bundle.costs
    if bundle.program is None:
        costs = replace(costs, plan=msgspec.structs.replace(costs.plan, messages=find_engine(engine).messages))
    with console.working("proving and simulating (the very first run compiles the simulator)"):
        result = evaluate_costs(costs, program=bundle.program)
    exported = export_plan(result, bundle.profile, engine)
    folder = _make_folder(output, exported.files.keys())
    write_all({str(folder / name): text.encode() for name, text in exported.files.items()})
    console.data(
        {
            "engine": exported.engine,
            "folder": output,
            "files": sorted(exported.files),
            "predicted_iteration_s": result.timeline.iteration_s,
            "approximations": exported.approximations,
        }
    )
    console.show(f"predicted: {show_seconds(result.timeline.iteration_s)} for each iteration")
    for text in exported.approximations:
        console.show(f"approximated: {text}")
    for name in sorted(exported.files):
        console.wrote(str(folder / name))
    console.next(f"read {folder / 'README.md'}")


def _make_folder(name: str, files: Iterable[str]) -> Path:
    """The folder of the export; it may exist if it is empty or an earlier export to the same engine."""
    folder = Path(name)
    hint = "Name another folder."
    try:
        if not name or (folder.exists() and not folder.is_dir()):
            raise FileError("is not a folder", where=name or "--output", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
        there = {item.name for item in folder.iterdir()}
        readme = folder / "README.md"
        is_export = readme.is_file() and MARK in readme.read_text(errors="replace")[:2000]
    except (OSError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"the folder cannot be made: {reason}", where=name, hint=hint) from None
    others = sorted(there - set(files))
    if others or (there and not is_export):
        what = f"the folder is not empty: {list_names(others or sorted(there))}"
        raise InputError(what, where=name, hint=hint)
    return folder
