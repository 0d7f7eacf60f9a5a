"""Opening a plan or program file again, with the profile and the cluster that it was made for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from penstock import files
from penstock.cli.sources import ProfileSource, parse_source, profile_options
from penstock.cluster.load import load_cluster
from penstock.cluster.types import Cluster
from penstock.errors import InputError
from penstock.plan.costs import Costs
from penstock.plan.pricing import price
from penstock.plan.types import FORMAT as PLAN_FORMAT
from penstock.plan.types import Plan, load_plan
from penstock.profile.types import Profile
from penstock.program.types import FORMAT as PROGRAM_FORMAT
from penstock.program.types import Program, load_program
from penstock.schedules import find_schedule


@dataclass(frozen=True)
class Opened:
    """A plan with what it is for, and the program where the file had one."""

    plan: Plan
    profile: Profile
    cluster: Cluster
    costs: Costs
    program: Program | None


F = TypeVar("F", bound=Callable[..., Any])


def saved_options(verb: F) -> F:
    """A plan or program file, and what to use with it instead of what it names."""
    for option in (
        profile_options,
        click.option("--force", is_flag=True, help="Go on with a profile or cluster that the plan was not made for."),
        click.option("--schedule", help="Another schedule than the plan's."),
        click.option("--cluster", help="Another cluster than the one that the file names."),
        click.option("--profile", "source", help="Another profile than the one that the file names."),
        click.argument("path"),
    ):
        verb = option(verb)
    return verb


def open_plan(
    path: str,
    *,
    profile: ProfileSource | None,
    cluster: str | None,
    schedule: str | None,
    force: bool,
    plan: Plan | None = None,
) -> Opened:
    """Read a plan or program, and the profile and cluster that it names unless others are given.

    With a plan, that is the one of the file, which is of another sort and has been read.
    """
    program: Program | None = None
    if plan is not None:
        pass
    elif format_of(path) == PROGRAM_FORMAT:
        program = load_program(path)
        plan = program.plan
        if schedule:
            raise InputError(
                "a program has its order already", where=path, hint="Leave --schedule out, or give a plan."
            )
    else:
        plan = load_plan(path)
    if schedule:
        find_schedule(schedule)
        plan = msgspec.structs.replace(plan, schedule=schedule)
    the_cluster = _load_cluster(plan, path) if cluster is None else load_cluster(cluster)
    source = profile or parse_saved(_source(plan.profile.source, path, "profile"), path)
    if profile is None:
        source = replace(source, source=_found(source.source, path))
    if source.rows is None:
        source = replace(source, rows=plan.rows)
    try:
        the_profile = source.for_cluster(the_cluster).load()
    except InputError as error:
        raise error if profile else _named_by(path, "profile", error) from None
    costs = price(plan, the_profile, the_cluster, strict=not force)
    if program is not None:
        program = _aligned(program, the_cluster, path)
    return Opened(plan, the_profile, the_cluster, costs, program)


def parse_saved(text: str, path: str) -> ProfileSource:
    """The source that a file remembers; what cannot be read is an error about that file."""
    try:
        return parse_source(text)
    except (ValueError, IndexError, KeyError):
        where = f"{path}, at $.profile.source"
        raise InputError(f"{text[:60]!r} is not a profile", where=where, hint="Name it with --profile.") from None


def _load_cluster(plan: Plan, path: str) -> Cluster:
    try:
        return load_cluster(_found(_source(plan.cluster.source, path, "cluster"), path))
    except InputError as error:
        raise _named_by(path, "cluster", error) from None


def _found(source: str, path: str) -> str:
    """A file that a plan names is looked for here, then beside the plan."""
    beside = Path(path).parent / source
    return str(beside) if not Path(source).exists() and beside.is_file() else source


def _named_by(path: str, what: str, error: InputError) -> InputError:
    hint = f"{path} names it as its {what}; give another place with --{what}."
    return InputError(error.what, where=error.where, hint=hint)


class _Head(msgspec.Struct):
    format: str = ""


def format_of(path: str, known: Sequence[str] = (PLAN_FORMAT, PROGRAM_FORMAT)) -> str:
    """What a file says it is, which must be one of these."""
    try:
        found = msgspec.json.decode(files.read_bytes(path), type=_Head).format
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return PLAN_FORMAT  # whose reader says what is wrong
    if found not in known:
        names = [item.removeprefix("penstock.").partition("/")[0] for item in known]
        told = " nor a ".join(names)
        hint = ", ".join(f"a {name} says {item!r}" for name, item in zip(names, known, strict=True))
        what = f'this is neither a {told}: its key "format" is {found!r}'
        raise InputError(what, where=path, hint=f"{hint[0].upper()}{hint[1:]}.")
    return found


def _source(source: str, path: str, what: str) -> str:
    if not source:
        raise InputError(f"the file does not say where its {what} is", where=path, hint=f"Name it with --{what}.")
    return source


def _aligned(program: Program, cluster: Cluster, path: str) -> Program:
    """The program with its devices in the cluster's order, and with those that it leaves out idle."""
    from penstock.program.types import program_from_actions

    names = [device.name for device in cluster.devices]
    for name in program.devices:
        if name not in cluster.index:
            raise InputError(f"the program has device {name!r}, which the cluster does not have", where=path)
    here = set(program.devices)
    return program_from_actions(
        program.plan, names, [list(program.actions(name)) if name in here else [] for name in names]
    )
