"""Answering `penstock plan`'s questions: how many micro-batches, how many devices; then there is one plan."""

from dataclasses import dataclass, field, replace
from typing import Any

from penstock.bundle import ProfileSource
from penstock.cli.console import Screen
from penstock.cli.options import Amounts, Method
from penstock.cli.render.choices import counts_data, show_counts, show_sizes, sizes_data
from penstock.cli.render.search_progress import make_plan
from penstock.cluster import Cluster
from penstock.errors import InputError
from penstock.plan import Plan
from penstock.planners import Problem
from penstock.planners.studies import choose_devices, choose_microbatches, device_part
from penstock.profile import Profile, is_computed
from penstock.units import counted, show_seconds


@dataclass(frozen=True)
class Answer:
    """A plan, and the problem that it solves: for all of the cluster, or for a part of it."""

    plan: Plan
    problem: Problem
    tried: dict[str, Any] = field(default_factory=dict)
    """What was looked at on the way, for machines."""


def answer(
    screen: Screen, source: ProfileSource, cluster: Cluster, cluster_source: str, amounts: Amounts, method: Method
) -> Answer:
    """Plan, after the questions that were asked."""
    wanted = amounts.num_devices(cluster)
    if wanted is not None and amounts.asks_for_microbatches and (len(wanted) > 1 or amounts.under is not None):
        raise InputError(
            "how many micro-batches and how many devices are two questions",
            hint="Give -m a number, or --devices one number without --under.",
        )
    profile = source.load()
    asker = _Asker(screen, source, profile, cluster, cluster_source, amounts, method)
    if wanted is not None:
        return asker.devices(wanted)
    if amounts.asks_for_microbatches:
        return asker.microbatches(cluster)
    return asker.one(cluster)


@dataclass(frozen=True)
class _Asker:
    screen: Screen
    source: ProfileSource
    profile: Profile
    whole: Cluster
    cluster_source: str
    amounts: Amounts
    method: Method

    def problem(self, cluster: Cluster) -> Problem:
        """With the number of micro-batches that was given."""
        return self.method.problem(
            self.profile,
            cluster,
            self.amounts.microbatches_of(self.profile.micro_batch_size),
            profile_source=self.source.text,
            cluster_source=self.cluster_source,
        )

    def one(self, cluster: Cluster) -> Answer:
        """The plan, where nothing is to be chosen."""
        problem = self.problem(cluster)
        return Answer(make_plan(self.screen, self.method, problem), problem)

    def devices(self, wanted: range) -> Answer:
        """The best number of devices of a range; one number is no question."""
        screen, under_s = self.screen, self.amounts.under_s
        if len(wanted) == 1 and under_s is None:
            part = device_part(Problem(self.profile, self.whole, 1), wanted[0])
            return self.microbatches(part) if self.amounts.asks_for_microbatches else self.one(part)

        def plan_on(part: Cluster) -> Plan:
            return make_plan(screen, self.method, self.problem(part), what=counted(part.num_devices, "device"))

        problem = Problem(self.profile, self.whole, self.amounts.microbatches_of(self.profile.micro_batch_size))
        choice = choose_devices(problem, wanted, plan_on, under_s=under_s)
        show_counts(screen, choice, under_s)
        if choice.best is None or choice.best.plan is None:
            fastest = min(
                (item for item in choice.counts if item.outcome and item.outcome.fits),
                key=lambda item: item.outcome.iteration_s if item.outcome else 0.0,
                default=None,
            )
            near = (
                f"The fastest found takes {show_seconds(fastest.outcome.iteration_s)} on "
                f"{counted(fastest.num_devices, 'device')}."
                if fastest is not None and fastest.outcome is not None
                else "Ask for more devices, or for a longer time."
            )
            what = f"no plan found on {wanted[0]} to {wanted[-1]} devices is under {show_seconds(under_s or 0.0)}"
            raise InputError(what, where="--under", hint=near)
        part = device_part(problem, choice.best.num_devices)
        return Answer(choice.best.plan, self.problem(part), {"device_counts": counts_data(choice)})

    def microbatches(self, cluster: Cluster) -> Answer:
        """The best size of micro-batches for the batch."""
        screen, method, batch = self.screen, self.method, self.amounts.global_batch_size
        assert batch is not None, "Amounts has seen to that"
        can_compute = is_computed(self.source.source)
        if can_compute and self.source.micro_batch_size is not None:
            raise InputError(
                "-m auto chooses the rows of a micro-batch itself", where="--micro-batch-size", hint="Leave it out."
            )
        asked: dict[int, Problem] = {}

        def profile_at(rows: int) -> Profile:
            return replace(self.source, micro_batch_size=rows).load()

        def plan_one(problem: Problem) -> Plan:
            rows = problem.rows_per_microbatch
            # What a plan remembers must load again, whatever rows the plan has.
            source = replace(self.source, micro_batch_size=rows if can_compute else self.profile.micro_batch_size)
            asked[rows] = method.problem(
                problem.profile,
                problem.cluster,
                problem.num_microbatches,
                rows,
                profile_source=source.text,
                cluster_source=self.cluster_source,
            )
            return make_plan(screen, method, asked[rows], what=f"micro-batches of {counted(rows, 'row')}")

        choice = choose_microbatches(
            self.profile, cluster, batch, plan_one, profile_at=profile_at if can_compute else None
        )
        show_sizes(screen, choice)
        assert choice.best.plan is not None, "the best was planned"
        return Answer(choice.best.plan, asked[choice.best.micro_batch_size], {"microbatch_sizes": sizes_data(choice)})
