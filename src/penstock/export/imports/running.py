"""`import_plan`: what an engine runs, as a plan."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from penstock import io
from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.export.engines import DEEPSPEED, MEGATRON, TORCH
from penstock.export.imports.description import Description, parse_description, parse_numbers
from penstock.export.imports.megatron_stages import megatron_cuts
from penstock.export.pipeline_file import FORMAT, PipelineFile
from penstock.export.schedule_csv import parse_schedule_csv, stages_of_rows
from penstock.export.stage_blocks import whole_blocks
from penstock.names import suggest_names
from penstock.plan import Plan, on
from penstock.planners import Problem
from penstock.profile import Profile, layer_roles
from penstock.program import Action, program_from_actions, with_order

ENGINES = {engine.name: engine for engine in (MEGATRON, DEEPSPEED, TORCH)}
SCHEDULES = {"megatron": "interleaved", "deepspeed": "1f1b"}


def import_plan(
    description: str,
    profile: Profile,
    cluster: Cluster,
    num_microbatches: int,
    *,
    profile_source: str = "",
    cluster_source: str = "",
) -> Plan:
    """The plan that an engine runs.

    Args:
        description: The engine and its stages: "megatron:Ett|ttt|tttL" (a layout string or hybrid pattern),
            "deepspeed:0,9,26" (the first layer of every stage, and the number of layers), or "torch:FOLDER" (an export
            for torch) or "torch:schedule.csv cuts=0,9,26". Keys behind it: pp= and dp= (pipeline ranks and replicas),
            devices= (by name, in the order of the ranks), recompute= (all, or the numbers of stages).
        profile: The profile of the model.
        cluster: The cluster that it runs on.
        num_microbatches: Micro-batches per iteration.
        profile_source: Where the profile comes from, for the plan.
        cluster_source: Where the cluster comes from, for the plan.

    Raises:
        InputError: The description is invalid, or is for another model or cluster.

    Example:
        >>> import penstock
        >>> profile = penstock.load_profile("gpt2", kinds=["A100-80"])
        >>> cluster = penstock.load_cluster("2 x A100-80 @ 100 GB/s")
        >>> plan = import_plan("megatron:Et*7|t*5L", profile, cluster, 4)
        >>> [(stage.start, stage.stop, stage.forward[0].device) for stage in plan.stages]
        [(0, 15, 'd0'), (15, 26, 'd1')]
    """
    parsed = parse_description(description, tuple(ENGINES))
    problem = Problem(
        profile,
        cluster,
        num_microbatches,
        schedule=SCHEDULES.get(parsed.engine, "auto"),
        recompute=parsed.options.get("recompute") == "all",
        messages=ENGINES[parsed.engine].messages,
        profile_source=profile_source,
        cluster_source=cluster_source,
    )
    if parsed.engine == "torch":
        return _torch_plan(parsed, problem)
    roles = layer_roles([unit.name for unit in profile.units])
    parsed.refuse("cuts")
    if parsed.engine == "megatron":
        cuts = megatron_cuts(parsed.stages, roles, where=parsed.text)
        num_ranks = _pipeline_ranks(parsed, len(cuts) - 1, cluster)
    else:
        parsed.refuse("pp")
        cuts = _fine_cuts(parse_numbers(parsed.stages, where=parsed.text), whole_blocks(roles), parsed.text)
        num_ranks = len(cuts) - 1
    ranks = [stage % num_ranks for stage in range(len(cuts) - 1)]
    return _plan(parsed, problem, cuts, ranks)


def _pipeline_ranks(parsed: Description, num_stages: int, cluster: Cluster) -> int:
    """The number of pipeline ranks: as given, or the most that divide the stages and have devices, but not one."""
    given = parsed.number("pp")
    if given is not None and num_stages % given:
        what = f"{num_stages} stages cannot be divided over {given} pipeline ranks"
        raise InputError(what, where=parsed.text, hint="The number of stages is a multiple of pp.")
    most = cluster.num_devices // (parsed.number("dp") or 1)
    possible = [count for count in range(min(2, num_stages), most + 1) if num_stages % count == 0]
    return given or max(possible, default=num_stages)


def _fine_cuts(cuts: Sequence[int], blocks: Sequence[int], where: str) -> tuple[int, ...]:
    """Cuts in the layers of the profile, of cuts in these or in whole blocks."""
    if cuts[0] != 0 or any(left >= right for left, right in pairwise(cuts)) or len(cuts) < 2:
        raise InputError("cuts begin with 0 and increase", where=where, hint="Write, for example, 0,2,6.")
    num_layers, num_whole = len(blocks), blocks[-1] + 1
    if cuts[-1] == num_layers:
        return tuple(cuts)
    if cuts[-1] != num_whole:
        known = f"{num_layers}" if num_whole == num_layers else f"{num_layers} (or {num_whole} with whole blocks)"
        what = f"the cuts end with {cuts[-1]}, but the model has {known} layers"
        raise InputError(what, where=where, hint="The last number is the number of layers.")
    return (*(blocks.index(cut) for cut in cuts[:-1]), num_layers)


def _plan(
    parsed: Description,
    problem: Problem,
    cuts: Sequence[int],
    ranks: Sequence[int],
    names: Sequence[Sequence[str]] | None = None,
) -> Plan:
    """The plan with these cuts, whose stage k runs on the pipeline rank ranks[k]."""
    devices = names or _devices(parsed, problem.cluster, max(ranks) + 1)
    rows, replicas = problem.rows_per_microbatch, len(devices[0])
    if rows % replicas:
        what = f"{rows} rows of a micro-batch cannot be divided over {replicas} replicas"
        raise InputError(what, where=parsed.text, hint=f"Use --micro-batch-size {replicas}, or name another dp=.")
    plan = problem.plan(parsed.engine, cuts, [on(*devices[rank]) for rank in ranks])
    return plan if problem.recompute else _recomputing(plan, parsed)


def _recomputing(plan: Plan, parsed: Description) -> Plan:
    """The plan that recomputes the stages that recompute= lists."""
    numbers = parsed.numbers("recompute")
    if numbers is None:
        return plan
    if max(numbers) >= plan.num_stages:
        what = f"recompute= names stage {max(numbers)}, the last is {plan.num_stages - 1}"
        raise InputError(what, where=parsed.text)
    stages = (replace(stage, recompute=number in numbers) for number, stage in enumerate(plan.stages))
    return replace(plan, stages=tuple(stages))


def _devices(parsed: Description, cluster: Cluster, num_ranks: int) -> list[list[str]]:
    """The devices of every pipeline rank, one for each replica."""
    known = [device.name for device in cluster.devices]
    named = parsed.options.get("devices")
    names = known if named is None else [name.strip() for name in named.split(",")]
    for name in names:
        if name not in known:
            hint = suggest_names(name[:60], dict.fromkeys(known), label="Devices", most=10)
            raise InputError(f"unknown device {name[:60]!r}", where=parsed.text, hint=hint)
    if len(set(names)) < len(names):
        raise InputError("a device is named twice", where=parsed.text)
    replicas = parsed.number("dp") or max(1, len(names) // num_ranks)
    if num_ranks * replicas > len(names) or (parsed.number("dp") is None and len(names) % num_ranks):
        what = f"{len(names)} devices for {num_ranks} pipeline ranks and {replicas} replicas of each"
        raise InputError(what, where=parsed.text, hint="Name pp= or dp=, or the devices= of the ranks.")
    return [names[rank * replicas : (rank + 1) * replicas] for rank in range(num_ranks)]


def _torch_plan(parsed: Description, problem: Problem) -> Plan:
    """The plan of a schedule CSV, with the cuts of its folder or of cuts=."""
    parsed.refuse("pp", "recompute")
    path = Path(parsed.stages)
    names: Sequence[Sequence[str]] | None = None
    if path.is_dir():
        parsed.refuse("cuts")
        file = io.decode_json(
            io.read_bytes(path / "pipeline.json"),
            PipelineFile,
            where=str(path / "pipeline.json"),
            expected_format=FORMAT,
        )
        if not file.stages:
            raise InputError("there are no stages", where=str(path / "pipeline.json"))
        cuts: tuple[int, ...] | None = (*(stage.start for stage in file.stages), file.stages[-1].stop)
        names = file.devices if "devices" not in parsed.options and "dp" not in parsed.options else None
        path = path / "schedule.csv"
    else:
        cuts = parsed.numbers("cuts")
    if cuts is None:
        what = "a schedule does not state where the model is cut"
        raise InputError(what, where=parsed.text, hint="Add cuts=0,9,26, or name an exported folder.")
    rows = parse_schedule_csv(io.read_text(path), where=str(path))
    ranks = stages_of_rows(rows, where=str(path))
    if len(cuts) != len(ranks) + 1:
        what = f"the schedule has {len(ranks)} stages, the cuts make {len(cuts) - 1}"
        raise InputError(what, where=parsed.text)
    blocks = whole_blocks(layer_roles([unit.name for unit in problem.profile.units]))
    _require_microbatches(rows, problem.num_microbatches, str(path))
    if names is not None:
        _require_known(names, problem.cluster, str(path.parent))
    plan = _plan(parsed, problem, _fine_cuts(cuts, blocks, parsed.text), ranks, names)
    return _ordered(plan, rows, ranks, problem.cluster)


def _require_microbatches(rows: Sequence[Sequence[Action]], expected: int, where: str) -> None:
    actual = 1 + max(action.microbatch for row in rows for action in row)
    if actual != expected:
        what = f"the schedule has {actual} micro-batches, not {expected}"
        raise InputError(what, where=where, hint=f"Use -m {actual}.")


def _require_known(names: Sequence[Sequence[str]], cluster: Cluster, where: str) -> None:
    unknown = [name for group in names for name in group if name not in cluster.index]
    if unknown:
        hint = "Name the devices= of the ranks in this cluster."
        raise InputError(
            f"the export runs on {unknown[0]!r}, which {cluster.name} does not have", where=where, hint=hint
        )


def _ordered(plan: Plan, rows: Sequence[Sequence[Action]], ranks: Sequence[int], cluster: Cluster) -> Plan:
    """The plan with the order of the schedule's rows."""
    row_of = {
        replica.device: rows[rank] for stage, rank in zip(plan.stages, ranks, strict=True) for replica in stage.forward
    }
    names = [device.name for device in cluster.devices]
    return with_order(plan, program_from_actions(plan, names, [row_of.get(name, ()) for name in names]))
