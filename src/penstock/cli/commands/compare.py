"""penstock compare: all planners and schedules on one problem, or an ablation of the planner auto."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.bundle import ProfileSource
from penstock.cli.console import Console, console_options
from penstock.cli.options import AutoOptions, RecipeOptions, profile_options
from penstock.cli.render import comparison_data, show_comparison, warn_if_old
from penstock.cli.workflows import planned_problems, plans_of
from penstock.errors import InputError
from penstock.names import suggest_names
from penstock.units import show_count

if TYPE_CHECKING:
    from penstock.profile import Profile


@click.command("compare")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option(
    "--cluster", "cluster_source", required=True, help='A TOML file, or a short form such as "8 x A100-40 @ 100 GB/s".'
)
@click.option(
    "-m",
    "--num-microbatches",
    type=click.IntRange(1, 2**24),
    default=16,
    show_default=True,
    help="Micro-batches per iteration.",
)
@click.option("--planners", help="Compare these planners only, such as balanced,spp,auto.")
@click.option("--schedules", help="Compare these schedules only, such as 1f1b,zb_h1; auto then uses each of them.")
@click.option(
    "--ablate", is_flag=True, help="Ablate the planner auto instead: disable one part of its search space at a time."
)
@click.option(
    "--against",
    help='Compare with what an engine runs, such as "megatron:Ett|ttt|tttL", "deepspeed:0,9,26" or "torch:FOLDER".',
)
@click.option("--work", type=int, help="For auto: number of plans to evaluate; the same number gives the same plan.")
@click.option("--seed", type=int, help="For auto: seed of its random changes [default: 0].")
@profile_options
@console_options
def command(
    console: Console,
    source: str,
    cluster_source: str,
    num_microbatches: int,
    planners: str | None,
    schedules: str | None,
    ablate: bool,
    against: str | None,
    work: int | None,
    seed: int | None,
    kinds: tuple[str, ...],
    micro_batch_size: int | None,
    sequence: int | None,
    recipe: RecipeOptions,
    untied: bool,
) -> None:
    """Compare all planners and schedules on one problem, each in the default shape of the schedule.

    With --ablate: run the planner auto with its full search space, without each part of it, and without all parts.

    With --against: what an engine runs today, beside the best plan for that engine and the best plan of all. Behind the
    stages, pp= and dp= name the numbers of pipeline ranks and replicas, devices= the devices in the order of the ranks.
    """
    from penstock.cluster import load_cluster
    from penstock.plan.pricing import check_kinds
    from penstock.planners import PLANNERS, Problem, single_device_s
    from penstock.planners.bounds import lower_bound
    from penstock.schedules import SCHEDULES

    if ablate and (planners or schedules):
        raise InputError("--ablate cannot be used with --planners or --schedules", hint="Leave them out.")
    if against is not None and (ablate or planners or schedules):
        raise InputError("--against cannot be used with --ablate, --planners or --schedules", hint="Leave them out.")
    cluster = load_cluster(cluster_source)
    warn_if_old(console, cluster)
    profile_source = ProfileSource(source, kinds, micro_batch_size, sequence, recipe.recipe, untied)
    profile_source = profile_source.for_cluster(cluster)
    profile = profile_source.load()
    check_kinds(profile, cluster.devices)
    options = AutoOptions(work=work, seed=seed)
    command_line = f'--profile {profile_source.text} --cluster "{cluster_source}" -m {num_microbatches}'
    title = f"{profile.name} on {cluster.name}, {_batches(num_microbatches, profile)}"
    names = {"profile": profile.name, "cluster": cluster.name}
    if ablate:
        from penstock.cli.render import show_ablation
        from penstock.cli.workflows import run_ablation

        ablation = run_ablation(console, Problem(profile, cluster, num_microbatches, schedule="auto"), options)
        console.data({**names, "ablation": ablation})
        show_ablation(console, title, ablation)
        console.assumptions(*profile.assumptions, *cluster.assumptions)
        console.next(f"penstock plan {command_line} -o plan.json")
        return
    if against is not None:
        from penstock.cli.render import running_data, show_running
        from penstock.cli.workflows import compare_running

        found = compare_running(console, against, Problem(profile, cluster, num_microbatches), options)
        outcomes = found.running, found.for_engine, found.unrestricted
        console.data({**names, **running_data(found.engine.name, *outcomes)})
        show_running(console, title, found.engine.title, *outcomes)
        console.assumptions(*profile.assumptions, *cluster.assumptions)
        console.next(f"penstock plan {command_line} --engine {found.engine.name} -o plan.json")
        return
    planner_names = _parse_names(planners, PLANNERS, "planner")
    schedule_names = _parse_names(schedules, SCHEDULES, "schedule")
    problems = planned_problems(
        profile,
        cluster,
        num_microbatches,
        planner_names,
        schedule_names,
        free_auto=schedules is None and "auto" in planner_names,
    )
    bound = lower_bound(profile, cluster, num_microbatches)
    single_s = min(single_device_s(Problem(profile, cluster, num_microbatches)))
    results = plans_of(console, problems, options)
    console.data({**names, **comparison_data(results, single_s, bound)})
    show_comparison(console, title, results, single_s, bound)
    console.assumptions(*profile.assumptions, *cluster.assumptions)
    best = results[0]
    console.next(f"penstock plan {command_line} --planner {best.planner} --schedule {best.schedule} -o plan.json")


def _batches(num_microbatches: int, profile: "Profile") -> str:
    return f"{show_count(num_microbatches, 'micro-batch', 'es')} of {show_count(profile.micro_batch_size, 'row')}"


def _parse_names(text: str | None, known: Mapping[str, object], what: str) -> list[str]:
    """The names of a comma-separated list, or all."""
    if text is None:
        return list(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(f"unknown {what} {name[:60]!r}", hint=suggest_names(name, known, label="Known", most=20))
    if not names:
        raise InputError(
            f"no {what} is named", where=f"--{what}s", hint=f"Use, for example, --{what}s {','.join([*known][:2])}."
        )
    return list(dict.fromkeys(names))
