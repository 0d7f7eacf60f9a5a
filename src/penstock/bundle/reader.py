"""Opening a plan or program file again, with the profile and the cluster that it was made for."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock import io
from penstock.bundle.find_sources import cluster_of, load_for, profile_of
from penstock.bundle.sources import ProfileSource
from penstock.cluster import Cluster, load_cluster
from penstock.errors import InputError
from penstock.plan import FORMAT as PLAN_FORMAT
from penstock.plan import Plan, load_plan
from penstock.plan.pricing import Costs, price
from penstock.profile import Profile
from penstock.program import FORMAT as PROGRAM_FORMAT
from penstock.program import Program, load_program
from penstock.schedules import find_schedule
from penstock.timeline import FORMAT as TIMELINE_FORMAT

MAKERS = {
    PLAN_FORMAT: "a plan is written by `penstock plan -o`",
    PROGRAM_FORMAT: "a program by `penstock simulate --program`",
    TIMELINE_FORMAT: "a timeline by `simulate -o`, `train -o` or `emulate -o`",
}


@dataclass(frozen=True)
class PlanBundle:
    """A plan with what it is for, and the program where the file had one."""

    plan: Plan
    profile: Profile
    cluster: Cluster
    costs: Costs
    program: Program | None


def open_plan(
    path: str,
    *,
    profile: ProfileSource | None,
    cluster: str | None,
    schedule: str | None,
    force: bool,
    plan: Plan | None = None,
) -> PlanBundle:
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
    _check_named(path, profile=profile or plan.profile.source, cluster=cluster or plan.cluster.source)
    the_cluster = cluster_of(plan, path) if cluster is None else load_cluster(cluster)
    the_profile = profile_of(plan, path, the_cluster) if profile is None else load_for(profile, plan, the_cluster)
    costs = price(plan, the_profile, the_cluster, strict=not force)
    if program is not None:
        program = _aligned(program, the_cluster, path)
    return PlanBundle(plan, the_profile, the_cluster, costs, program)


class _Head(msgspec.Struct):
    format: str = ""


def format_of(path: str, known: Sequence[str] = (PLAN_FORMAT, PROGRAM_FORMAT)) -> str:
    """What a file says it is, which must be one of these."""
    data = io.read_bytes(path)
    try:
        found = msgspec.json.decode(data, type=_Head).format
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if data.lstrip()[:1] == b"{":
            return PLAN_FORMAT  # whose reader says what is wrong with the JSON
        raise _neither(path, known, "it is not JSON with keys and values") from None
    for item in known:
        if found.partition("/")[0] == item.partition("/")[0]:
            return item  # whose reader says so if it is of another version
    raise _neither(path, known, f'its key "format" is {found!r}' if found else 'it has no key "format"')


def _neither(path: str, known: Sequence[str], reason: str) -> InputError:
    names = [item.removeprefix("penstock.").partition("/")[0] for item in known]
    makers = ", ".join(MAKERS[item] for item in known)
    return InputError(
        f"this is neither a {' nor a '.join(names)}: {reason}",
        where=path,
        hint=f"{makers[0].upper()}{makers[1:]}. A profile goes behind --profile, a cluster behind --cluster.",
    )


def _check_named(path: str, **sources: object) -> None:
    """Refuse a file without its profile or cluster, as those are that were made from values in Python."""
    missing = [what for what, source in sources.items() if not source]
    if missing:
        what = f"the file does not say where its {' and its '.join(missing)} {'are' if len(missing) > 1 else 'is'}"
        hint = f"Save what it was planned for, and name it with {' and '.join(f'--{name}' for name in missing)}."
        raise InputError(what, where=path, hint=hint)


def _aligned(program: Program, cluster: Cluster, path: str) -> Program:
    """The program with its devices in the cluster's order, and with those that it leaves out idle."""
    from penstock.program import program_from_actions

    names = [device.name for device in cluster.devices]
    for name in program.devices:
        if name not in cluster.index:
            raise InputError(f"the program has device {name!r}, which the cluster does not have", where=path)
    here = set(program.devices)
    return program_from_actions(
        program.plan, names, [list(program.actions(name)) if name in here else [] for name in names]
    )
