"""Opening a plan or program file with the profile and the cluster that it was made for."""

import dataclasses
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
    """A plan with its profile, cluster and costs, and the program if the file has one."""

    plan: Plan
    profile: Profile
    cluster: Cluster
    costs: Costs
    program: Program | None

    def with_own_messages(self) -> "PlanBundle":
        """The same plan with Penstock's messages, as Penstock runs it, if it is for an engine with others."""
        if self.plan.messages is None:
            return self
        plan = msgspec.structs.replace(self.plan, messages=None)
        notes = (*self.costs.notes, "the plan is for an engine that moves messages in another way: here, Penstock's do")
        return dataclasses.replace(self, plan=plan, costs=dataclasses.replace(self.costs, plan=plan, notes=notes))


def open_plan(
    path: str,
    *,
    profile: ProfileSource | None,
    cluster: str | None,
    schedule: str | None,
    force: bool,
    plan: Plan | None = None,
) -> PlanBundle:
    """Read a plan or program file, with its profile and cluster.

    Args:
        path: The file.
        profile: The profile to use instead of the one that the file names.
        cluster: The cluster to use instead of the one that the file names.
        schedule: The schedule to use instead of the plan's.
        force: Accept a profile or cluster that the plan was not made for.
        plan: The plan of the file, if it is read already, such as that of a timeline.

    Returns:
        The plan with everything it needs.

    Raises:
        InputError: If a file is invalid or missing, or the files do not belong together.
    """
    program: Program | None = None
    if plan is not None:
        pass
    elif format_of(path) == PROGRAM_FORMAT:
        program = load_program(path)
        plan = program.plan
        if schedule:
            raise InputError(
                "a program has a fixed order, so --schedule has no effect",
                where=path,
                hint="Leave --schedule out, or use a plan.",
            )
    else:
        plan = load_plan(path)
    if schedule:
        find_schedule(schedule)
        plan = msgspec.structs.replace(plan, schedule=schedule)
    _check_named(path, profile=profile or plan.profile.source, cluster=cluster or plan.cluster.source)
    cluster_value = cluster_of(plan, path) if cluster is None else load_cluster(cluster)
    profile_value = profile_of(plan, path, cluster_value) if profile is None else load_for(profile, plan, cluster_value)
    costs = price(plan, profile_value, cluster_value, strict=not force)
    if program is not None:
        program = _aligned(program, cluster_value, path)
    return PlanBundle(plan, profile_value, cluster_value, costs, program)


class _Head(msgspec.Struct):
    format: str = ""


def format_of(path: str, known: Sequence[str] = (PLAN_FORMAT, PROGRAM_FORMAT)) -> str:
    """The format of a file, one of `known`."""
    data = io.read_bytes(path)
    try:
        name = msgspec.json.decode(data, type=_Head).format
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        if data.lstrip()[:1] == b"{":
            return PLAN_FORMAT  # its reader reports what is wrong with the JSON
        raise _format_error(path, known, "it is not a JSON object") from None
    for item in known:
        if name.partition("/")[0] == item.partition("/")[0]:
            return item  # its reader reports another version
    raise _format_error(path, known, f'its key "format" is {name!r}' if name else 'it has no key "format"')


def _format_error(path: str, known: Sequence[str], reason: str) -> InputError:
    names = [item.removeprefix("penstock.").partition("/")[0] for item in known]
    makers = ", ".join(MAKERS[item] for item in known)
    return InputError(
        f"this is neither a {' nor a '.join(names)}: {reason}",
        where=path,
        hint=f"{makers[0].upper()}{makers[1:]}. Name a profile with --profile and a cluster with --cluster.",
    )


def _check_named(path: str, **sources: object) -> None:
    """Reject a file without a profile or cluster source, such as a plan of values created in Python."""
    missing = [what for what, source in sources.items() if not source]
    if missing:
        what = f"the file does not name its {' and its '.join(missing)}"
        hint = f"Save what it was planned for, and pass it with {' and '.join(f'--{name}' for name in missing)}."
        raise InputError(what, where=path, hint=hint)


def _aligned(program: Program, cluster: Cluster, path: str) -> Program:
    """The program with its devices in the cluster's order, and unused devices idle."""
    from penstock.program import program_from_actions

    names = [device.name for device in cluster.devices]
    for name in program.devices:
        if name not in cluster.index:
            raise InputError(f"the cluster has no device {name!r}, which the program uses", where=path)
    used = set(program.devices)
    return program_from_actions(
        program.plan, names, [list(program.actions(name)) if name in used else [] for name in names]
    )
