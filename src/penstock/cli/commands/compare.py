"""penstock compare: all planners and schedules on one problem, or what every freedom of auto is worth."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.bundle import Precision, ProfileSource
from penstock.cli.console import Screen, screen_options
from penstock.cli.options import AutoOptions, profile_options
from penstock.cli.render import comparison_data, planned_problems, plans_of, show_comparison, warn_if_old
from penstock.errors import InputError
from penstock.units import counted

if TYPE_CHECKING:
    from penstock.profile import Profile


@click.command("compare")
@click.option("--profile", "source", required=True, help="A profile file, or a built-in model such as gpt2-xl.")
@click.option("--cluster", "cluster_source", required=True, help='A TOML file, or such as "8 x A100-40 @ 100 GB/s".')
@click.option("-m", "--num-microbatches", type=click.IntRange(1, 2**24), default=16, show_default=True)
@click.option("--planners", help="Only these, such as balanced,spp,auto.")
@click.option("--schedules", help="Only these, such as 1f1b,zb_h1; auto then keeps to each of them in turn.")
@click.option("--ablate", is_flag=True, help="Instead: what every freedom of the planner auto is worth.")
@click.option("--work", type=int, help="For auto: how many plans to look at; the same work, the same plan.")
@click.option("--seed", type=int, help="For auto: where its random changes begin; 0 if not given.")
@profile_options
@screen_options
def command(
    screen: Screen,
    source: str,
    cluster_source: str,
    num_microbatches: int,
    planners: str | None,
    schedules: str | None,
    ablate: bool,
    work: int | None,
    seed: int | None,
    kinds: tuple[str, ...],
    micro_batch_size: int | None,
    sequence: int | None,
    precision: Precision | None,
) -> None:
    """All planners and schedules on one problem, each in the shape that the schedule is made for.

    With --ablate: the planner auto with all its freedoms, with each of them off, and with none.
    """
    from penstock.cluster import load_cluster
    from penstock.planners import PLANNERS, Problem, alone_s
    from penstock.planners.bounds import lower_bound
    from penstock.schedules import SCHEDULES

    if ablate and (planners or schedules):
        raise InputError("--ablate is about the planner auto alone", hint="Leave --planners and --schedules out.")
    cluster = load_cluster(cluster_source)
    warn_if_old(screen, cluster)
    wanted = ProfileSource(source, kinds, micro_batch_size, sequence, precision).for_cluster(cluster)
    profile = wanted.load()
    asked = AutoOptions(work=work, seed=seed)
    command_line = f'--profile {wanted.text} --cluster "{cluster_source}" -m {num_microbatches}'
    title = f"{profile.name} on {cluster.name}, {_batches(num_microbatches, profile)}"
    names = {"profile": profile.name, "cluster": cluster.name}
    if ablate:
        from penstock.cli.render import run_ablation, show_ablation

        ablation = run_ablation(screen, Problem(profile, cluster, num_microbatches, schedule="auto"), asked)
        screen.data({**names, "ablation": ablation})
        show_ablation(screen, title, ablation)
        screen.assumptions(*profile.assumptions, *cluster.assumptions)
        screen.next(f"penstock plan {command_line} -o plan.json")
        return
    chosen = _chosen(planners, PLANNERS, "planner")
    orders = _chosen(schedules, SCHEDULES, "schedule")
    problems = planned_problems(
        profile, cluster, num_microbatches, chosen, orders, free_auto=schedules is None and "auto" in chosen
    )
    bound = lower_bound(profile, cluster, num_microbatches)
    alone = min(alone_s(Problem(profile, cluster, num_microbatches)))
    found = plans_of(screen, problems, asked)
    screen.data({**names, **comparison_data(found, alone, bound)})
    show_comparison(screen, title, found, alone, bound)
    screen.assumptions(*profile.assumptions, *cluster.assumptions)
    best = found[0]
    screen.next(f"penstock plan {command_line} --planner {best.planner} --schedule {best.schedule} -o plan.json")


def _batches(num_microbatches: int, profile: "Profile") -> str:
    return f"{counted(num_microbatches, 'micro-batch', 'es')} of {counted(profile.micro_batch_size, 'row')}"


def _chosen(text: str | None, known: Mapping[str, object], what: str) -> list[str]:
    """The names in a list with commas, or all."""
    if text is None:
        return list(known)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(f"there is no {what} {name[:60]!r}", hint=f"There are: {', '.join(known)}.")
    if not names:
        raise InputError(f"no {what} is named", where=f"--{what}s", hint=f"Such as --{what}s {','.join([*known][:2])}.")
    return list(dict.fromkeys(names))
